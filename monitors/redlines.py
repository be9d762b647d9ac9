"""Every figure of the article, in one place: rules, panels, verdicts and runbooks read it.

A `redline.yaml` may override any of them; an unknown key or an impossible value stops the
process at start and says where.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from monitors.labels import Modality

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]
MOST_MOVES = 60  # that can be allowed in an hour: at every minute, a dwell
Nats = Annotated[float, Field(ge=0.0)]


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CacheLines(_Figures):
    """Table 1 (S4.1): both conditions together, held for `hold_s`, quantise the pool."""

    hit_rate_floor: Share = 0.90
    gpu_mem_gb: Annotated[float, Field(gt=0.0)] = 25.0
    hold_s: Seconds = 30.0
    pressure_share: Share = 0.20  # S1.4: this share of the tokens moves to the host
    pressure_hit_rate: Share = 0.92  # S1.4: what should be left of the hit rate


class LatencyLines(_Figures):
    """Table 2 (S4.2, S4.5). A line is an exceedance probability, never a quantile."""

    first_packet_s: Seconds = 0.250  # S4.5, a p95 line
    first_packet_exceedance: Share = 0.05
    degrade_s: Seconds = 0.400  # S4.2, a p99 line
    degrade_exceedance: Share = 0.01
    window_s: Seconds = 30.0
    min_count: Annotated[int, Field(ge=1)] = 100  # at fewer, one slow request would be past 1 %
    audio_lane_s: Seconds = 0.080  # S2.3
    low_latency_first_token_s: Seconds = 0.200  # S2.5


class FaultLines(_Figures):
    """Table 3 (S4.3): a share of the last `window_requests` finished requests."""

    rate: Share = 0.005
    window_requests: Annotated[int, Field(ge=1)] = 10_000
    # The alert is the slow way to a rollback (the evidence log is the fast one) and reads a plain
    # share: at fewer requests a healthy 0.2 % would cross the line by chance now and then.
    min_count: Annotated[int, Field(ge=1)] = 2_000
    recent_s: Seconds = 60.0  # the ring stands still without traffic: older news is no news


class EntropyThresholds(_Figures):
    """Reuse thresholds in nats (S1.3). Image is not named by the article: it follows video."""

    audio: Nats = 0.35
    video: Nats = 0.42
    text: Nats = 0.28
    image: Nats = 0.42

    def of(self, modality: Modality) -> float:
        """The threshold of one modality, nats."""
        return float(getattr(self, modality.value))


class PromotionStep(_Figures):
    """A share, percent, that A is given on its way to all; what it must have stood before more."""

    weight: Annotated[int, Field(ge=1, le=99)]
    least_s: Seconds = 60.0
    least_requests: Annotated[int, Field(ge=1)] = 20


class RolloutLines(_Figures):
    """S4.4: the canary's share and bake; the false-alarm budget of one rollout (DESIGN 8)."""

    canary_weight: Annotated[int, Field(ge=1, le=100)] = 5
    bake_s: Seconds = 600.0
    steps: tuple[PromotionStep, ...] = (PromotionStep(weight=25), PromotionStep(weight=50))
    alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-3
    pass_alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05  # promotion on too little evidence
    min_sessions: Annotated[int, Field(ge=1)] = 3
    warmup_s: Seconds = 10.0  # or, if that is sooner,
    warmup_requests: Annotated[int, Field(ge=1)] = 10
    drain_s: Seconds = 10.0  # what streams in flight may take at most once A is cut over
    canary_lease_s: Seconds = 10.0
    lease_renewal_s: Seconds = 2.0
    evidence_stale_s: Seconds = 30.0
    alarm_s: Seconds = 5.0  # in which a rehearsed breach must be called, before A has traffic

    @field_validator("steps")
    @classmethod
    def _rise(cls, steps: tuple[PromotionStep, ...]) -> tuple[PromotionStep, ...]:
        weights = [step.weight for step in steps]
        if weights != sorted(set(weights)):
            raise ValueError(f"the weights must rise from step to step, not {weights}")
        return steps


class LadderLines(_Figures):
    """The degradation ladder (S2.5, S4.2): media sizes, lease, and how it comes back.

    The times in which it comes back grow with the dwell, which doubles after each relapse.
    """

    full_height: Annotated[int, Field(ge=16)] = 720  # S4.2: what video is scaled down to at most
    degraded_height: Annotated[int, Field(ge=16)] = 360
    floor_side: Annotated[int, Field(ge=16)] = 160
    degraded_audio_hz: Annotated[int, Field(ge=1000)] = 8_000
    lease_s: Seconds = 120.0
    dwell_s: Seconds = 60.0
    max_dwell_s: Seconds = 1800.0
    relapse_s: Seconds = 600.0
    # The highest load of so long must fit before a rung is given back; of a day at most, however
    # long the dwell has become.
    memory_s: Annotated[float, Field(gt=0.0, le=86_400.0)] = 1800.0
    trust_s: Seconds = 3600.0  # a forecast that alone holds a quiet rung is put to the test then
    # Of one part of one version: down both rungs of media and back, after one relapse. It binds
    # easing alone, no worsening is ever forbidden.
    moves_per_hour: Annotated[int, Field(ge=2, le=MOST_MOVES)] = 6


class SchedulerLines(_Figures):
    """S2.1, S2.4: slices and the utilisation band of shedding."""

    video_slice_s: Seconds = 2.0
    audio_slice_s: Seconds = 1.0
    shed_utilisation: Share = 0.85
    resume_utilisation: Share = 0.75


class AlertLines(_Figures):
    """Alerting's own health: how long a silence may last before it is itself an alert."""

    down_s: Seconds = 10.0  # a plane or a resident out of sight
    heartbeat_s: Seconds = 5.0  # the Watchdog alert comes this often
    heartbeat_silence_s: Seconds = 30.0  # without it for so long, the control plane evaluates
    repeat_s: Seconds = 30.0  # Alertmanager tells of a firing alert again after this
    # An error budget of the whole service is not judged by fewer requests, however few a rule of
    # the tables asks for: those of a drill or two are no month.
    budget_min_count: Annotated[int, Field(ge=1)] = 100


class RedLines(_Figures):
    """All limits whose crossing acts."""

    cache: CacheLines = CacheLines()
    latency: LatencyLines = LatencyLines()
    faults: FaultLines = FaultLines()
    entropy: EntropyThresholds = EntropyThresholds()
    rollout: RolloutLines = RolloutLines()
    ladder: LadderLines = LadderLines()
    scheduler: SchedulerLines = SchedulerLines()
    alerts: AlertLines = AlertLines()


def sections() -> dict[str, type[BaseModel]]:
    """The parts of the red lines by their names in a `redline.yaml`."""
    return {name: type(part) for name, part in RedLines()}


class RedLinesError(ValueError):
    """A `redline.yaml` that cannot be used; the message says where and what to do."""


class _UniqueKeys(yaml.SafeLoader):
    """A key that is there twice would else silently lose its first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.MarkedYAMLError(
                problem=f"{twice[0]} is there twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


def load(path: Path | None, base: RedLines | None = None) -> RedLines:
    """The figures of `base` (None: the article's), overridden by the YAML file at `path` where
    one is given.

    Raises `RedLinesError` for a missing file, broken YAML, unknown keys or impossible values.
    """
    if path is None:
        return base or RedLines()
    return parse(read(path), str(path), base)


def read(path: Path) -> dict[str, Any]:
    """What a YAML file says, unchecked. Raises `RedLinesError` where it is none of keys."""
    try:
        raw: object = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # a safe one
    except OSError as err:
        raise RedLinesError(f"{path}: cannot be read: {err.strerror}") from err
    except yaml.YAMLError as err:
        raise RedLinesError(f"{path}: is not YAML: {err}") from err
    if not isinstance(raw, dict | None):
        raise RedLinesError(f"{path}: write keys and values, as `cache: {{hit_rate_floor: 0.85}}`")
    return cast("dict[str, Any]", raw or {})


def parse(raw: Mapping[str, object], where: str, base: RedLines | None = None) -> RedLines:
    """The figures of `base` with those of `raw` over them, section by section.

    Raises `RedLinesError` for unknown keys and impossible values; `where` tells whose they are.
    """
    try:
        return RedLines.model_validate(_over(base, raw))
    except ValidationError as err:
        lines = [
            f"  {'.'.join(str(part) for part in e['loc']) or '(top)'}: {e['msg']}"
            for e in err.errors()
        ]
        raise RedLinesError(f"{where}: please mend these keys\n" + "\n".join(lines)) from err


def _over(base: RedLines | None, raw: Mapping[str, object]) -> dict[str, object]:
    merged: dict[str, object] = {} if base is None else base.model_dump()
    for section, figures in raw.items():
        under = merged.get(section)
        if isinstance(under, dict) and isinstance(figures, dict):
            merged[section] = cast("dict[str, object]", {**under, **figures})
        else:
            merged[section] = figures
    return merged
