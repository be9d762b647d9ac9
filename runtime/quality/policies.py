"""From a plan's KV policy to the cache's own reuse policy, and what it was seen to do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from monitors.labels import Modality
from monitors.redlines import RedLines
from runtime.engine.build import calibrated_policy
from runtime.kv.reuse import (
    AtRandom,
    Candidate,
    LowEntropy,
    ReusePolicy,
    ReuseRule,
    off,
    upper_layers,
)
from runtime.model.checkpoint import Checkpoint
from runtime.quality.plan import Reuse

HALF = 0.5
NEVER = LowEntropy(dict.fromkeys(Modality, -math.inf))
Seen = tuple[Modality, float]  # an entry that might alias: its block's deciding entropy, nats


@dataclass
class Tally:
    """Another rule, and all that it was asked."""

    rule: ReuseRule
    seen: list[Seen] = field(default_factory=list)
    aliased: int = 0

    @property
    def words(self) -> str:
        return self.rule.words

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return self.rule.threshold(layer, modality)

    def picks(self, entry: Candidate) -> bool:
        picked = self.rule.picks(entry)
        self.seen.append((entry.modality, entry.nats))
        self.aliased += picked
        return picked


def tallied(policy: ReusePolicy) -> tuple[ReusePolicy, Tally | None]:
    """`policy` with its rule tallied; no tally where reuse is off."""
    if policy.rule is None:
        return policy, None
    tally = Tally(policy.rule)
    return replace(policy, rule=tally), tally


def watching(checkpoint: Checkpoint) -> ReusePolicy:
    """Asks about every entry that might alias, and aliases none."""
    return under(checkpoint, NEVER)


def policy_of(
    checkpoint: Checkpoint, reuse: Reuse, lines: RedLines, seen: Sequence[Seen], seed: int
) -> ReusePolicy:
    """`seen`: by `watching`, elsewhere; only `LOWEST50` needs it. Raises `CalibrationError`."""
    match reuse:
        case Reuse.CHECKPOINT:
            return calibrated_policy(checkpoint, lines)
        case Reuse.NATIVE:
            return off("native")
        case Reuse.ARTICLE:
            return under(checkpoint, LowEntropy({m: lines.entropy.of(m) for m in Modality}))
        case Reuse.LOWEST50:
            return under(checkpoint, LowEntropy({m: _median(seen, m) for m in Modality}))
        case Reuse.RANDOM50:
            return under(checkpoint, AtRandom(HALF, seed))


def under(checkpoint: Checkpoint, rule: ReuseRule) -> ReusePolicy:
    """Reuse by `rule` on every layer that may alias."""
    config = checkpoint.config
    layers = config.thinker_config.text_config.num_hidden_layers
    return ReusePolicy("on", rule, upper_layers(layers, config.talker_config.accept_hidden_layer))


def _median(seen: Sequence[Seen], modality: Modality) -> float:
    """Half of a modality's entries lie below; a modality that was not seen never aliases."""
    nats = [value for of, value in seen if of is modality]
    return round(float(np.quantile(nats, HALF)), 6) if nats else 0.0
