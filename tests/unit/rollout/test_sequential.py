"""The sequential tests against exact enumeration, scipy, and the figures they are chosen by."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from rollout.sequential import (
    BETTER_ODDS,
    RESTARTS,
    START_WEIGHT,
    WORSE_ODDS,
    Line,
    LineTest,
    Saved,
    Verdict,
    alternatives,
    log_factors,
    log_sum,
    log_thresholds,
    log_wealth,
    opening,
    restarted,
)

FAULTS = Line(name="faults", limit=0.005, alpha=1e-3, pass_alpha=0.05, min_sessions=3)
MISSES = Line(
    name="residency", limit=0.10, alpha=1e-3, pass_alpha=0.05, min_sessions=3, by_turns=False
)


def fed(line: Line, ys: list[float], restart_every: int = 0, sessions: int = 50) -> LineTest:
    test = LineTest(line)
    for i, y in enumerate(ys):
        test.observe(y, f"s{i % sessions}")
        if restart_every and (i + 1) % restart_every == 0:
            test.restart()
    return test


def test_nobody_is_told_that_a_breach_is_there_while_sessions_are_missing():
    test = LineTest(FAULTS)
    for turn in range(60):
        test.observe(1.0, f"s{turn % 2}")
    numbers = test.numbers()
    assert numbers.e > numbers.threshold
    assert (numbers.verdict, numbers.to_breach) == (Verdict.INCONCLUSIVE, 2 / 3)
    test.observe(1.0, "s2")
    numbers = test.numbers()
    assert (numbers.verdict, numbers.to_breach) == (Verdict.BREACH, 1.0)


def test_the_way_gone_grows_with_the_evidence_and_is_whole_at_the_verdict():
    test, ways = LineTest(FAULTS), list[float]()
    while test.verdict is Verdict.INCONCLUSIVE:
        ways.append(test.numbers().to_pass or 0.0)
        test.observe(0.0, f"s{len(ways)}")
    assert ways == sorted(ways)
    assert ways[len(ways) // 2] == pytest.approx(0.5, abs=0.15), "evenly"
    assert (test.verdict, test.numbers().to_pass) == (Verdict.PASS, 1.0)


def pass_e(test: LineTest) -> float:
    return test.numbers().pass_e


@pytest.mark.parametrize("limit", [0.005, 0.01, 0.05, 0.3])
def test_a_factor_is_the_likelihood_ratio_that_scipy_computes(limit: float) -> None:
    means = alternatives(limit, WORSE_ODDS)
    for y in (0, 1):
        expected = stats.bernoulli.logpmf(y, means) - stats.bernoulli.logpmf(y, limit)
        np.testing.assert_allclose(log_factors(y, limit, means), expected, rtol=1e-9)


@pytest.mark.parametrize("limit", [0.005, 0.05, 0.3])
def test_e_is_a_martingale_at_the_limit_by_exact_enumeration(limit: float) -> None:
    """Over all sequences of 10 requests, restarts among them, E has expectation exactly 1."""
    line = msgspec.structs.replace(FAULTS, limit=limit)
    worse = better = 0.0
    for ys in itertools.product((0.0, 1.0), repeat=10):
        chance = float(np.prod([limit if y else 1.0 - limit for y in ys]))
        test = fed(line, list(ys), restart_every=3)
        worse += chance * np.exp(test.log_e)
        better += chance * pass_e(test)
    assert worse == pytest.approx(1.0, rel=1e-9)
    assert better == pytest.approx(1.0, rel=1e-9)


def test_e_has_expectation_one_at_the_limit_by_dynamic_programming_over_300_requests() -> None:
    """Without restarts E depends on the count alone, so its law is binomial."""
    n, counts = 300, np.arange(301)
    means = alternatives(FAULTS.limit, WORSE_ODDS)
    log_e = logsumexp(
        counts[:, None] * log_factors(1.0, FAULTS.limit, means)
        + (n - counts[:, None]) * log_factors(0.0, FAULTS.limit, means)
        + opening(len(means), 1.0),
        axis=1,
    )
    expectation = logsumexp(log_e + stats.binom.logpmf(counts, n, FAULTS.limit))
    assert expectation == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mean", [0.02, 0.06, 0.10])
def test_betting_on_bounded_values_gains_nothing_while_the_mean_keeps_the_line(mean: float) -> None:
    """Three-point distributions of a miss share, enumerated: E[E] is 1 at the limit, less below."""
    values, spread = np.array([0.0, mean, 1.0]), mean * (1.0 - mean) / 2.0
    chances = np.array([spread * (1 - mean) / mean, 0.0, spread])
    chances[1] = 1.0 - chances.sum()
    chances = chances / chances.sum()
    true_mean = float(values @ chances)
    expected = 0.0
    for picks in itertools.product(range(3), repeat=6):
        test = fed(MISSES, [float(values[i]) for i in picks], restart_every=2)
        expected += float(np.prod(chances[list(picks)])) * np.exp(test.log_e)
    assert expected <= 1.0 + 1e-9
    if true_mean == pytest.approx(MISSES.limit):
        assert expected == pytest.approx(1.0, rel=1e-9)


def stop_times(line: Line, ys: NDArray[np.float64], restart_every: int = 150) -> NDArray[np.int64]:
    """When each row of `ys` is called a breach (0: never), by the module's own pure functions."""
    rows, length = ys.shape
    means = alternatives(line.limit, WORSE_ODDS)
    mass, left = np.tile(opening(len(means), START_WEIGHT), (rows, 1)), RESTARTS
    stop = np.zeros(rows, dtype=np.int64)
    for i in range(length):
        mass = mass + log_factors(ys[:, i], line.limit, means)
        called = (stop == 0) & (log_wealth(mass, left) >= log_thresholds(line.alpha)[0])
        stop[called] = i + 1
        if (i + 1) % restart_every == 0 and left:
            mass, left = restarted(mass), left - 1
    return stop


@pytest.mark.parametrize(
    ("rate", "length", "low", "high"),
    [(0.2, 150, 10, 22), (0.05, 700, 85, 165), (0.02, 2500, 480, 830)],
)
def test_a_bad_rate_is_called_after_about_the_designs_median(
    rate: float, length: int, low: int, high: int
) -> None:
    rng = np.random.default_rng(5)
    stop = stop_times(FAULTS, (rng.random((200, length)) < rate).astype(float))
    assert low <= np.median(np.where(stop == 0, length + 1, stop)) <= high


def test_a_change_in_mid_run_is_called_too() -> None:
    rng = np.random.default_rng(6)
    rates = np.where(np.arange(2200) < 1500, 0.002, 0.2)
    stop = stop_times(FAULTS, (rng.random((150, 2200)) < rates).astype(float))
    delays = stop[stop > 1500] - 1500
    assert len(delays) >= 148
    assert np.median(delays) <= 60


def test_a_healthy_canary_is_hardly_ever_called() -> None:
    rng = np.random.default_rng(7)
    stop = stop_times(FAULTS, (rng.random((400, 1500)) < 0.005).astype(float))
    assert np.count_nonzero(stop) <= 3


def test_a_poor_cache_is_called_by_its_mean_miss_share() -> None:
    rng = np.random.default_rng(8)
    stop = stop_times(MISSES, rng.beta(0.6, 1.4, (150, 300)))  # mean 0.3
    assert 10 <= np.median(np.where(stop == 0, 301, stop)) <= 120


observations = st.lists(st.sampled_from([0.0, 0.0, 0.25, 1.0]), max_size=40)


@settings(max_examples=40, deadline=None)
@given(ys=observations, cut=st.integers(0, 40))
def test_a_test_saved_to_bytes_and_restored_goes_on_as_if_nothing_happened(
    ys: list[float], cut: int
) -> None:
    whole, first = fed(FAULTS, ys, restart_every=7), fed(FAULTS, ys[:cut], restart_every=7)
    saved = msgspec.json.decode(msgspec.json.encode(first.save()), type=Saved)
    second = LineTest.restore(FAULTS, saved)
    for i in range(len(ys[:cut]), len(ys)):
        second.observe(ys[i], f"s{i % 50}")
        if (i + 1) % 7 == 0:
            second.restart()
    assert second.save() == whole.save()
    assert second.log_e == whole.log_e


def test_state_of_another_grid_is_refused() -> None:
    saved = msgspec.structs.replace(LineTest(FAULTS).save(), log_turns=(0.0,))
    with pytest.raises(ValueError, match="another grid"):
        LineTest.restore(FAULTS, saved)


def test_faults_of_two_sessions_are_no_breach_however_many() -> None:
    test = fed(FAULTS, [1.0] * 50, sessions=2)
    assert test.log_e > np.log(1e20)
    assert test.verdict is Verdict.INCONCLUSIVE
    test.observe(1.0, "a third session")
    assert test.verdict is Verdict.BREACH


def test_a_breach_stays_one_whatever_follows() -> None:
    test = fed(FAULTS, [1.0] * 10 + [0.0] * 20_000)
    assert test.log_e < -np.log(FAULTS.alpha)
    assert test.verdict is Verdict.BREACH


def test_nothing_observed_is_inconclusive_and_has_no_mean() -> None:
    test = LineTest(FAULTS)
    assert test.verdict is Verdict.INCONCLUSIVE
    assert test.mean is None
    assert test.log_e == pytest.approx(0.0, abs=1e-9)


def test_health_takes_hundreds_of_clean_requests_and_is_forgotten_with_a_gap() -> None:
    assert fed(FAULTS, [0.0] * 700).verdict is Verdict.INCONCLUSIVE
    test = fed(FAULTS, [0.0] * 800)
    assert test.verdict is Verdict.PASS
    test.forget_health()
    assert test.verdict is Verdict.INCONCLUSIVE


def test_requests_at_another_level_speak_against_a_line_but_never_for_it() -> None:
    test, bad = LineTest(FAULTS), LineTest(FAULTS)
    for i in range(2_000):
        test.observe(0.0, f"s{i}", counts_as_health=False)
        bad.observe(1.0, f"s{i}", counts_as_health=False)
    assert test.verdict is Verdict.INCONCLUSIVE
    assert bad.verdict is Verdict.BREACH


def test_wealth_before_any_restart_counts_the_weight_that_is_not_staked() -> None:
    mass = opening(len(WORSE_ODDS), START_WEIGHT)
    assert float(log_wealth(mass, RESTARTS)) == pytest.approx(0.0, abs=1e-9)
    for left in range(RESTARTS - 1, -1, -1):
        mass = restarted(mass)
        assert float(log_wealth(mass, left)) == pytest.approx(0.0, abs=1e-9)
    assert float(log_sum(mass)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("field", "value"), [("limit", 0.0), ("limit", 1.0), ("alpha", 0.0)])
def test_a_line_that_cannot_be_tested_does_not_construct(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"faults.*{field}"):
        msgspec.structs.replace(FAULTS, **{field: value})


@pytest.mark.parametrize("y", [-0.1, 1.1, float("nan")])
def test_an_observation_outside_the_unit_interval_is_refused(y: float) -> None:
    with pytest.raises(ValueError, match="not an observation"):
        LineTest(FAULTS).observe(y, "s")


def test_the_grids_lie_strictly_on_their_own_side_of_any_limit() -> None:
    for limit in (1e-4, 0.005, 0.5, 0.99):
        assert np.all(alternatives(limit, WORSE_ODDS) > limit)
        assert np.all(alternatives(limit, WORSE_ODDS) < 1.0)
        assert np.all(alternatives(limit, BETTER_ODDS) < limit)
