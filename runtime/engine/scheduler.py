"""What the engine does next, decided purely: a prefill slice, a packed decode, or some speech."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from monitors.labels import Lane, Modality
from monitors.redlines import LatencyLines, SchedulerLines
from runtime.engine.lanes import ORDER, Urgency, by_urgency

TEXT_TOKEN_S = 0.05  # a reader's pace: when the next text token is due

_LANE_OF = {
    Modality.AUDIO: Lane.AUDIO,
    Modality.VIDEO: Lane.KEY_FRAMES,
    Modality.IMAGE: Lane.KEY_FRAMES,
    Modality.TEXT: Lane.TEXT,
}


class Kind(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    SPEAK = "speak"


@dataclass(frozen=True)
class RequestView:
    """What the scheduler needs to know of one request. Times are the engine's clock.

    `modalities` are those of prompt tokens not prefilled yet. `speech_due` is when its listener
    runs dry, or when its first packet is due; `None`: it does not speak.
    """

    request_id: str
    arrived: float
    served: float  # when it was last worked on
    modalities: frozenset[Modality]
    decodes: bool
    speaks: bool  # speech can go on now
    starves: bool  # speech waits for the next text token
    speech_due: float | None


@dataclass(frozen=True)
class Work:
    kind: Kind
    request_ids: tuple[str, ...]
    urgency: Urgency


@dataclass(frozen=True)
class Waiting:
    """A request that is not in the cache yet."""

    request_id: str
    urgency: Urgency


def choose(views: Sequence[RequestView], lines: LatencyLines, now: float) -> Work | None:
    """The most urgent work there is; `None` when there is none."""
    works = [work for view in views for work in _own_work(view, lines)]
    decode = _packed_decode([view for view in views if view.decodes])
    ordered = by_urgency([*works, *decode], now)
    return ordered[0] if ordered else None


def prefill_urgency(view: RequestView, lines: LatencyLines) -> Urgency:
    """A request waits in the highest lane that its remaining prompt has something in, so that
    its own text never holds its audio back."""
    lane = min((_LANE_OF[m] for m in view.modalities), key=ORDER.index, default=Lane.TEXT)
    within = {
        Lane.AUDIO: lines.audio_lane_s,
        Lane.KEY_FRAMES: lines.first_packet_s,
        Lane.TEXT: lines.degrade_s,
    }
    return Urgency(lane, view.arrived + within[lane], view.served)


def _own_work(view: RequestView, lines: LatencyLines) -> Iterable[Work]:
    if view.modalities:
        yield Work(Kind.PREFILL, (view.request_id,), prefill_urgency(view, lines))
    if view.speaks and view.speech_due is not None:
        urgency = Urgency(Lane.AUDIO, view.speech_due, view.served)
        yield Work(Kind.SPEAK, (view.request_id,), urgency)


def _packed_decode(views: Sequence[RequestView]) -> Iterable[Work]:
    """One step for all that decode, as urgent as the most urgent of them."""
    if not views:
        return
    starved = [v.speech_due for v in views if v.starves and v.speech_due is not None]
    since = min(view.served for view in views)
    lane, due = (Lane.AUDIO, min(starved)) if starved else (Lane.TEXT, since + TEXT_TOKEN_S)
    yield Work(Kind.DECODE, tuple(v.request_id for v in views), Urgency(lane, due, since))


# ---------------------------------------------------------------- shedding (S2.4)
@dataclass(frozen=True)
class Shedable:
    """A text-lane request. `nats`: its mean cross-modal entropy; `None`: undefined, as it is
    for text alone, and then only the remaining frames count."""

    request_id: str
    nats: float | None
    remaining: int  # tokens still to prefill and to decode

    @property
    def score(self) -> float:
        return (1.0 if self.nats is None else self.nats) * self.remaining


class Shedder:
    """Sheds from 85 % utilisation until it is back under 75 %, the highest score first."""

    def __init__(self, lines: SchedulerLines) -> None:
        self._lines = lines
        self._shedding = False

    def pick(self, utilisation: float, candidates: Iterable[Shedable]) -> str | None:
        """The request to drop now, one at a time; `None`: drop none."""
        if utilisation > self._lines.shed_utilisation:
            self._shedding = True
        elif utilisation < self._lines.resume_utilisation:
            self._shedding = False
        worst = max(candidates, key=lambda c: c.score, default=None)
        return worst.request_id if self._shedding and worst is not None else None


class Utilisation:
    """Busy step time over wall time, smoothed over about `span_s` seconds."""

    def __init__(self, span_s: float = 1.0) -> None:
        self._span_s = span_s
        self.value = 0.0

    def add(self, busy_s: float, wall_s: float) -> None:
        if wall_s <= 0.0:
            return
        old = math.exp(-wall_s / self._span_s)
        self.value = old * self.value + (1.0 - old) * min(1.0, busy_s / wall_s)
