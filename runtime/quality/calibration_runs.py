"""Right answers dictated under a reuse rule, clip by clip, and all that the rule was asked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitors.contract import KvRung
from monitors.labels import Modality
from monitors.redlines import RedLines
from monitors.rungs import RUNGS
from runtime.engine.build import EngineSettings
from runtime.engine.shadow import divergence
from runtime.kv.formats import Format
from runtime.kv.reuse import Candidate, ReuseRule
from runtime.kv.subspace import Subspace
from runtime.media.fidelity import fidelity_of
from runtime.model.checkpoint import Checkpoint
from runtime.quality.asking import Asked, ask
from runtime.quality.bootstrap import Estimate, bootstrap
from runtime.quality.calibration_report import CalibrationPlan
from runtime.quality.held_out import CALIBRATION_SEED, draw
from runtime.quality.likelihood import Dictation, Ended, Likelihood
from runtime.quality.policies import NEVER, under
from runtime.quality.tasks import Kind

KINDS = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS)  # in turn; the clips whose tasks have a bar
IN_FLIGHT = 8

Where = tuple[int, Modality]


@dataclass(frozen=True)
class Seen:
    """An entry that might alias, and how far the alias would be from its own K/V."""

    where: Where
    nats: float
    picked: bool
    distance: float


@dataclass
class Watch:
    """Another rule, and all that it was asked."""

    rule: ReuseRule
    seen: list[Seen] = field(default_factory=list)

    @property
    def words(self) -> str:
        return self.rule.words

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return self.rule.threshold(layer, modality)

    def picks(self, entry: Candidate) -> bool:
        picked = self.rule.picks(entry)
        where = (entry.layer, entry.modality)
        self.seen.append(Seen(where, entry.nats, picked, entry.distance()))
        return picked


@dataclass(frozen=True, eq=False)
class Outcome:
    """One rule over one set of clips."""

    said: Sequence[Dictation]
    seen: Sequence[Seen]

    @property
    def nats(self) -> NDArray[np.float64]:
        """Mean per token, of each clip."""
        return np.array([dictation.mean for dictation in self.said])

    @property
    def share(self) -> float:
        """Of all entries that might alias, those that did."""
        return float(np.mean([seen.picked for seen in self.seen])) if self.seen else 0.0

    def of(self, where: Where) -> list[Seen]:
        return [seen for seen in self.seen if seen.where == where]


class Runs:
    """`tell` is called after each run."""

    def __init__(
        self, checkpoint: Checkpoint, plan: CalibrationPlan, tell: Callable[[], None]
    ) -> None:
        self._checkpoint = checkpoint
        self._plan = plan
        self._tell = tell
        self._voice = min(checkpoint.config.talker_config.speaker_id)
        self._fidelity = fidelity_of(RUNGS[0].media, RedLines().ladder)

    def clips(self, part: int) -> list[Asked]:
        """Set `part`: no two sets share a clip, nor does any with the held-out ones."""
        count, kinds = self._plan.clips, len(KINDS)
        first = part * -(-count // kinds)
        return [self._clip(KINDS[i % kinds], first + i // kinds) for i in range(count)]

    def run(
        self,
        clips: Sequence[Asked],
        rule: ReuseRule,
        *,
        subspace: Subspace | None = None,
        ended: Ended = lambda *_: None,
    ) -> Outcome:
        """Pages are kept in `subspace` where there is one; `ended` is shown each sequence at the
        end of its answer. Raises `PoolTooSmall` or `NotANumber`."""
        watch = Watch(rule)
        likelihood, said = self._likelihood(watch, subspace, ended), list[Dictation]()
        for first in range(0, len(clips), IN_FLIGHT):
            batch = clips[first : first + IN_FLIGHT]
            said += likelihood.dictate([(one.generate, one.arrays, one.right) for one in batch])
        self._tell()
        return Outcome(said, watch.seen)

    def divergence(self, native: Outcome, other: Outcome) -> Estimate:
        """Nats a token, as the shadow check measures it."""
        logits = self._likelihood(NEVER).logits
        pairs = zip(native.said, other.said, strict=True)
        return bootstrap([divergence(logits(a), logits(b)).nats for a, b in pairs])

    def _clip(self, kind: Kind, number: int) -> Asked:
        plan = self._plan
        sample = draw(kind, plan.seconds, number, seed=plan.seed, of=CALIBRATION_SEED)
        longest = len(sample.question.answer) + 1  # a token is at least a letter
        return ask(sample, self._fidelity, longest, self._voice, speech=False)

    def _likelihood(
        self, rule: ReuseRule, subspace: Subspace | None = None, ended: Ended = lambda *_: None
    ) -> Likelihood:
        settings = EngineSettings(
            name="calibrate",
            version=self._checkpoint.version,
            pool_bytes=self._plan.pool_bytes,
            reuse=under(self._checkpoint, rule),
            storage=Format.NATIVE if subspace is None else Format.SUBSPACE,
            subspace=subspace,
        )
        return Likelihood(self._checkpoint, settings, KvRung.NATIVE, ended)


def loss(native: Outcome, other: Outcome) -> Estimate:
    """How far the right answers' perplexity rises, as a share; paired clip by clip."""
    nats = bootstrap(other.nats - native.nats)
    value, low, high = (math.expm1(figure) for figure in (nats.value, nats.low, nats.high))
    return Estimate(value=value, low=low, high=high)
