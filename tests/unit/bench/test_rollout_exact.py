"""The bench's arrays and exact laws against the tests that a rollout really runs."""

import itertools

import numpy as np
import pytest
from scipy import stats

from bench.rollout_exact import alarm_chance, health_chance, quantile, stop_law, walk
from bench.rollout_peers import block, ratio_test, window
from bench.rollout_sim import (
    NEVER,
    Mass,
    Traffic,
    Turns,
    bernoulli_stops,
    ever_healthy,
    healthy,
    session_means,
)
from monitors.redlines import RedLines
from rollout.arm import Arm, Turn
from rollout.plan import make_plan
from rollout.sequential import Line, LineTest, Verdict
from rollout.sessions import UNIT_S

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")
FAULTS = Line(name="faults", limit=0.005, alpha=1e-3, pass_alpha=0.05, min_sessions=3)
SMALL = Line(name="small", limit=0.2, alpha=0.3, pass_alpha=0.5, min_sessions=3)


def outcomes(mean: float, n: int) -> list[tuple[float, LineTest, int | None]]:
    """(chance, test at the end, when it was called) of every run of `n` requests."""
    found: list[tuple[float, LineTest, int | None]] = []
    for ys in itertools.product((0.0, 1.0), repeat=n):
        test, called = LineTest(SMALL), None
        for i, y in enumerate(ys):
            test.observe(y, f"r{i}")
            if called is None and test.verdict is Verdict.BREACH:
                called = i + 1
        chance = float(np.prod([mean if y else 1.0 - mean for y in ys]))
        found.append((chance, test, called))
    return found


@pytest.mark.parametrize("mean", [0.2, 0.6])
def test_the_law_of_a_call_is_that_of_all_runs_enumerated(mean: float) -> None:
    law = stop_law(SMALL, mean, 9)
    expected = np.zeros(9)
    for chance, _, called in outcomes(mean, 9):
        if called is not None:
            expected[called - 1] += chance
    np.testing.assert_allclose(law, expected, atol=1e-12)
    assert expected.sum() > 0.01, "some run is called"


def test_the_chance_of_health_is_that_of_all_runs_enumerated() -> None:
    expected = sum(
        chance for chance, test, _ in outcomes(0.1, 9) if test.numbers().pass_e >= 1.0 / 0.5
    )
    assert health_chance(SMALL, 0.1, 9) == pytest.approx(expected)
    assert 0.01 < expected < 0.99


def test_a_walk_to_a_fixed_count_is_the_negative_binomial_law_of_scipy() -> None:
    law = walk(np.full(400, 5), 0.03)
    n = np.arange(1, 401)
    np.testing.assert_allclose(law, stats.nbinom.pmf(n - 5, 5, 0.03), atol=1e-14)


def test_every_bernoulli_line_cries_wolf_less_than_its_share_allows_exactly() -> None:
    """At the limit itself, without restarts by dynamic programming, and with them by importance;
    the sum of both over the lines is inside the budget of a rollout."""
    total = 0.0
    for line in (line for line in PLAN.lines if line.by_turns):
        exactly = float(stop_law(line, line.limit, 3_000).sum())
        found = alarm_chance(line, 3_000, 600, 1)
        assert 0.0 < exactly < 0.9 * line.alpha
        assert found.value + 4.0 * found.error < line.alpha
        total += found.value + 4.0 * found.error
    assert total < RedLines().rollout.alpha


def test_what_is_estimated_by_importance_is_what_plain_runs_show() -> None:
    often = Line(name="often", limit=0.05, alpha=0.2, pass_alpha=0.05, min_sessions=3)
    found = alarm_chance(often, 400, 4_000, 2)
    stops = bernoulli_stops(often, Traffic(400), 0.05, 4_000, 3)
    hits = int((stops != NEVER).sum())
    low, high = stats.binomtest(hits, 4_000).proportion_ci(0.999)
    assert low - 4 * found.error < found.value < high + 4 * found.error


def test_masses_in_arrays_are_those_of_the_tests_to_ten_digits() -> None:
    """Sessions of three turns, one after another, with restarts between."""
    rng, runs = np.random.default_rng(5), 4
    turns, sessions, tables = Mass(0.005, runs), Mass(0.005, runs), Turns(0.005)
    arms = [Arm((FAULTS,)) for _ in range(runs)]
    for s in range(40):
        total = np.zeros(runs)
        for k in range(3):
            bad = rng.random(runs) < 0.1
            tables.take(turns, np.flatnonzero(bad), np.full(runs, k), total == 0.0)
            total += bad
            for arm, y in zip(arms, bad, strict=True):
                arm.take(turn(float(y), f"s{s}", s * UNIT_S + k))
        sessions.settle(np.arange(runs), total / 3.0)
        for arm in arms:
            arm.pass_time((s + 1) * UNIT_S - 1.0)
        if s % 7 == 6:
            for each in (turns, sessions, *arms):
                each.restart()
    for i, arm in enumerate(arms):
        test = arm.test("faults")
        assert np.log(turns.e(np.array([i])))[0] == pytest.approx(test.log_e, abs=1e-10)
        assert np.log(sessions.e(np.array([i])))[0] == pytest.approx(test.log_e_sessions, abs=1e-10)


def turn(y: float, session: str, at: float) -> Turn:
    return Turn(
        line="faults", y=y, request="r", session=session, at=at, counts_as_health=True
    )  # fmt: skip


def test_medians_at_the_full_budget_are_within_a_tenth_of_those_promised() -> None:
    for mean, promised in ((0.02, 599), (0.05, 110), (0.20, 13)):
        assert quantile(stop_law(FAULTS, mean, 3_000), 0.5) <= 1.1 * promised
    degrade = Line(name="d", limit=0.01, alpha=1e-3, pass_alpha=0.05, min_sessions=3)
    for mean, promised in ((0.05, 187), (0.10, 55), (0.50, 5)):
        assert quantile(stop_law(degrade, mean, 1_000), 0.5) <= 1.1 * promised


def test_sessions_that_hang_together_do_not_cry_wolf_where_turns_bet_on_alone_would() -> None:
    tens = Traffic(1_500, turns=10.0, icc=0.3)
    loose = Line(name="l", limit=0.02, alpha=0.02, pass_alpha=0.05, min_sessions=3)
    ours = (bernoulli_stops(loose, tens, 0.02, 2_000, 6) != NEVER).mean()
    naive = (bernoulli_stops(loose, tens, 0.02, 1_000, 6, naive=True) != NEVER).mean()
    assert ours <= stats.binom.ppf(0.9999, 2_000, loose.alpha) / 2_000
    assert naive > 5 * loose.alpha


def test_health_of_sessions_at_the_limit_is_rare() -> None:
    tens = Traffic(3_000, turns=10.0, icc=0.3)
    loose = Line(name="l", limit=0.05, alpha=0.02, pass_alpha=0.05, min_sessions=3)
    assert healthy(loose, tens, 0.05, 600, 7).mean() <= 0.05
    assert 0 < ever_healthy(loose, tens, 0.05, 600, 7).sum() <= stats.binom.ppf(0.999, 600, 0.05)
    assert healthy(loose, tens, 0.005, 200, 7).mean() > 0.9


def test_means_of_sessions_have_the_mean_and_the_correlation_asked_for() -> None:
    rng, length = np.random.default_rng(8), np.full(40_000, 10)
    y = session_means(rng, 0.1, 0.1, length)
    variance = 0.1 * 0.9 / 3.0
    assert y.mean() == pytest.approx(0.1, rel=0.03)
    assert y.var() == pytest.approx(variance * (0.1 + 0.9 / 10.0), rel=0.05)


def test_peers_are_what_the_design_says_of_them() -> None:
    assert ratio_test(0.05, 3_000, 1e-3).median == pytest.approx(233, abs=3)
    assert block(0.005, 10_000).share == pytest.approx(0.46, abs=0.01)
    assert block(0.2, 10_000).median == 10_000
    assert window(0.002, 3_000, 60, 1).share > 0.3
