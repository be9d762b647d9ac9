"""Rules beside a learned one pick as many entries, and the control as many of each cell."""

import numpy as np
import pytest

from bench.learned_rules import Near, Seen, Watch, at_rate
from monitors.labels import Modality
from runtime.kv.learned import INPUTS, Net, inputs
from runtime.kv.reuse import Candidate, Likeness
from runtime.quality.policies import Tally

RATE = 0.3
CELLS = [(layer, modality) for layer in (1, 3) for modality in (Modality.AUDIO, Modality.VIDEO)]


def net(level: float) -> Net:
    hidden = np.zeros((INPUTS, 1))
    hidden[0] = 0.01
    return Net(np.zeros(INPUTS), np.ones(INPUTS), hidden, np.zeros(1), np.ones(1), level)


NETS = {where: net(level) for where, level in zip(CELLS, (-5.0, -3.0, 0.0, 1.0), strict=True)}


def entries() -> list[Candidate]:
    rng, made = np.random.default_rng(0), list[Candidate]()
    for number in range(1200):
        far, nats = rng.uniform(0.0, 1.0, 2).tolist()
        alike = Likeness((far, far), (0.5, 0.5), (1.0, 1.0), (1.0, 1.0))
        where, place = CELLS[number % len(CELLS)], number.to_bytes(4)
        made.append(Candidate(*where, nats, place, lambda a=alike: a, nats, nats))
    return made


def watched() -> list[Seen]:
    watch = Watch()
    assert not any(watch.picks(entry) for entry in entries())
    return watch.seen


def test_every_rule_picks_the_asked_share() -> None:
    for rule in at_rate(RATE, watched(), NETS).values():
        scored = Tally(rule)
        picked = [scored.picks(entry) for entry in entries()]
        assert np.mean(picked) == pytest.approx(RATE, abs=0.05)
        assert scored.aliased == sum(picked)


def test_the_learned_rule_takes_what_is_foretold_to_cost_least() -> None:
    learned = at_rate(RATE, watched(), NETS)["learned"]
    taken = {(e.layer, e.modality): learned.picks(e) for e in reversed(entries())}
    assert [taken[where] for where in (CELLS[0], CELLS[2], CELLS[3])] == [True, False, False]


def test_its_control_takes_as_many_of_each_cell_but_others() -> None:
    rules = at_rate(RATE, watched(), NETS)
    learned, control = rules["learned"], rules["at random in the learned cells"]
    for where in CELLS:
        of = [entry for entry in entries() if (entry.layer, entry.modality) == where]
        one, other = ([rule.picks(entry) for entry in of] for rule in (learned, control))
        assert np.mean(one) == pytest.approx(np.mean(other), abs=0.1)
        if 0.05 < np.mean(one) < 0.95:
            assert one != other


def test_the_nearest_are_those_within_the_distance() -> None:
    rule = Near(0.25)
    for entry in entries()[:50]:
        assert rule.picks(entry) is bool(inputs(entry)[3] <= np.log(0.25))
