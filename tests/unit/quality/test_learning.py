"""Learning on trials whose harm is known."""

import math

import numpy as np
import pytest

from monitors.labels import Modality
from runtime.kv.learned import INPUTS, MOST_PARAMETERS, Floats
from runtime.kv.reuse import Candidate, Likeness, ReuseRule
from runtime.quality.learning import NothingAliased, Trial, gather, train, trial_rule

MILD, HARSH = (1, Modality.AUDIO), (3, Modality.AUDIO)


def harm_of(where: tuple[int, Modality], seen: Floats) -> float:
    """Known: layer 3 harms a hundred times more, and what has a larger first input ten times."""
    return (0.1 if where == HARSH else 0.001) * 10.0 ** (seen[0] > 0.0)


def trials(count: int = 600) -> list[Trial]:
    rng, made = np.random.default_rng(0), list[Trial]()
    for number in range(count):
        where = (MILD, HARSH)[number % 2]
        aliased = [(where, rng.normal(size=INPUTS)) for _ in range(rng.integers(1, 6))]
        made.append(Trial(aliased, sum(harm_of(*one) for one in aliased)))
    return made


def test_what_an_alias_costs_is_learned_from_sums_alone() -> None:
    nets, rng = train(trials()), np.random.default_rng(1)
    seen = [rng.normal(size=INPUTS) for _ in range(200)]
    for where in (MILD, HARSH):
        low, high = (
            [nets[where].harm(one) for one in seen if bool(one[0] > 0.0) is side]
            for side in (False, True)
        )
        assert np.median(high) > 3 * np.median(low)
    harms = {where: np.mean([net.harm(one) for one in seen]) for where, net in nets.items()}
    assert 30 < harms[HARSH] / harms[MILD] < 300


def test_the_same_trials_and_seed_give_the_same_nets() -> None:
    first, again, other = train(trials(20)), train(trials(20)), train(trials(20), seed=1)
    assert (first[MILD].flat == again[MILD].flat).all()
    assert (first[MILD].flat != other[MILD].flat).any()
    assert first[MILD].parameters <= MOST_PARAMETERS


def test_with_little_to_learn_from_all_entries_of_a_cell_are_alike() -> None:
    net = train([Trial([(MILD, np.zeros(INPUTS))] * 2, 0.5)])[MILD]
    assert net.harm(np.zeros(INPUTS)) == pytest.approx(0.25, rel=0.05)


def test_without_any_alias_there_is_nothing_to_learn_from() -> None:
    with pytest.raises(NothingAliased):
        train([Trial([], 0.0)])


def test_each_trial_aliases_in_one_layer_and_is_told_from_full_kv() -> None:
    def answer(sample: int, rule: ReuseRule) -> float:
        for layer in (1, 3):
            for place in range(50):
                alike = Likeness((0.5, 0.5), (0.5, 0.5), (1.0, 1.0), (1.0, 1.0))
                rule.picks(
                    Candidate(layer, Modality.AUDIO, 0.1, bytes([place]), lambda a=alike: a, 0, 0)
                )
        return float(sample)

    made = gather([0, 1, 2], (1, 3), answer, lambda full, other: full + other)
    assert [trial.harm for trial in made] == [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]
    assert [{where[0] for where, _ in trial.aliased} for trial in made] == [{1}, {3}] * 3
    assert len({len(trial.aliased) for trial in made}) > 1  # other shares
    assert math.isfinite(sum(float(seen.sum()) for _, seen in made[0].aliased))


def test_two_answers_alias_other_entries() -> None:
    words = [trial_rule(1, number, 0).words for number in range(6)]
    assert len(set(words)) == len(words)
