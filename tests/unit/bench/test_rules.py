"""Three rules that alias an equal share, and each the right ones."""

import numpy as np
import pytest

from bench.rules import at_rate, watching
from monitors.labels import Modality
from runtime.kv.reuse import Candidate, Likeness, ReuseRule
from runtime.quality.policies import Seen

SEEN: list[Seen] = [
    (of, float(nats))
    for of in (Modality.TEXT, Modality.AUDIO)
    for nats in np.linspace(0.0, 1.0, 500)
]


def candidate(modality: Modality, nats: float, number: int = 0) -> Candidate:
    def unread() -> Likeness:
        raise AssertionError("no rule by entropy alone reads K and V")

    return Candidate(1, modality, nats, number.to_bytes(4), likeness=unread)


def picked(rule: ReuseRule) -> list[float]:
    return [nats for n, (of, nats) in enumerate(SEEN) if rule.picks(candidate(of, nats, n))]


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
def test_every_rule_picks_the_asked_share(rate: float) -> None:
    for rule in at_rate(rate, SEEN).values():
        assert len(picked(rule)) / len(SEEN) == pytest.approx(rate, abs=0.04)


def test_low_picks_the_lowest_and_high_the_highest() -> None:
    rules = at_rate(0.25, SEEN)
    assert max(picked(rules["low entropy"])) < 0.26
    assert min(picked(rules["high entropy"])) > 0.74


def test_a_modality_that_was_never_seen_never_aliases() -> None:
    rules = at_rate(0.25, SEEN)
    for name in ("low entropy", "high entropy"):
        for nats in (0.0, 1.3):
            assert not rules[name].picks(candidate(Modality.VIDEO, nats))


def test_watching_sees_all_and_aliases_nothing() -> None:
    policy, tally = watching((1,))
    nats = np.full((4, 16), 0.2, np.float32)
    assert policy.aliased_layers(0, nats, b"block", list) == []
    assert (len(tally.seen), tally.aliased) == (1, 0)
