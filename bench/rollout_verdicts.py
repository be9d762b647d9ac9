"""Verdicts of a rollout: how often they cry wolf, how soon they call, how surely they promote.

Bernoulli lines of requests that stand alone are computed exactly (`rollout_exact`); sessions and
shares are drawn (`rollout_sim`), all lines of a rollout beside one another. Requests are those on
A within one bake.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from bench import rollout_exact as exact
from bench import rollout_peers as peers
from bench.board import Direction, Figure, options, show
from bench.proportions import recall, share, upper_bound
from bench.rollout_folds import promoted
from bench.rollout_sim import (
    NEVER,
    Ints,
    Traffic,
    bernoulli_stops,
    ever_healthy,
    healthy,
    share_stops,
)
from monitors.redlines import RedLines
from rollout.attribution import Attribution
from rollout.plan import make_plan
from rollout.sequential import Line, LineTest, Verdict

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")
BUDGET = RedLines().rollout.alpha  # of a rollout, all lines together
BAKE, LONG_BAKE = 3_000, 10_000  # requests on A in ten minutes at 5 and at 16.7 a second
HEALTHY_BAKE = 12_000  # at 20 a second
SESSIONS = Traffic(BAKE, turns=10.0, icc=0.1)
RUNS, QUICK_RUNS = 100_000, 4_000
# Median and p95 until called, of the design's simulations: what was promised.
FAULT_RATES = {0.01: (4131, 9010), 0.02: (599, 1403), 0.05: (110, 276), 0.20: (13, 37)}
EXCEEDANCES = {0.05: (187, 445), 0.10: (55, 136), 0.50: (5, 13)}
NEAR = 1.1  # the measured median may be so many times the promised one
CLUSTERED = 7e-4  # of false alarms at the full budget, promised for sessions


def figures(*, quick: bool) -> list[Figure]:
    """All sections."""
    runs = QUICK_RUNS if quick else RUNS
    return [
        *(_per_thousand(figure) for figure in _false_alarms(runs)),
        *_medians(PLAN.faults, FAULT_RATES, LONG_BAKE, "faults"),
        *_medians(_degrade(), EXCEEDANCES, BAKE, "past 400 ms"),
        *_peers(min(runs, 4_000)),
        *_sessions(max(500, runs // 50)),
        *_promotion(max(500, runs // 50)),
        *_blame(40 if quick else 300),
    ]


def _per_thousand(figure: Figure) -> Figure:
    """The same of a thousand rollouts: the shares are small."""
    value, low, high, target = (
        None if each is None else 1e3 * each
        for each in (figure.value, figure.low, figure.high, figure.target)
    )
    return replace(figure, value=value, low=low, high=high, target=target, unit="of 1,000")


def _full(line: Line) -> Line:
    return msgspec.structs.replace(line, alpha=BUDGET)


def _degrade() -> Line:
    return next(each.line for each in PLAN.latency if each.line.limit == 0.01)


# ---------------------------------------------------------------- crying wolf
def _false_alarms(runs: int) -> Iterator[Figure]:
    """At the limits themselves: every line as bad as it may be, for a whole bake."""
    yield _alone(runs)
    called = [_stops(line, SESSIONS, line.limit, runs, 100 + i) for i, line in _numbered()]
    cried = int(np.any([stops != NEVER for stops in called], axis=0).sum())
    told = "all lines at their limits; the budget is what Ville's inequality guarantees"
    yield _cried("false alarms of a rollout, sessions of ten", cried, runs, BUDGET, told)
    for line in (PLAN.faults, PLAN.residency):
        stops = _stops(_full(line), SESSIONS, line.limit, runs, 7)
        hits = int((stops != NEVER).sum())
        bar = f"false alarms of {line.name} alone, full budget, sessions of ten"
        yield _cried(bar, hits, runs, CLUSTERED, "at its limit")
    few = min(runs, 20_000)
    naive = bernoulli_stops(_full(PLAN.faults), SESSIONS, PLAN.faults.limit, few, 8, naive=True)
    told = "each turn bet on as if it stood alone; published for comparison"
    yield share("... were turns independent", int((naive != NEVER).sum()), few, told)


def _cried(bar: str, hits: int, runs: int, line: float, told: str) -> Figure:
    """Against its line where there are runs enough to show that; else only published."""
    if runs < RUNS:
        return share(bar, hits, runs, f"{told}; too few runs for a bar of {1e3 * line:g}")
    return upper_bound(bar, hits, runs, line, f": {told}")


def _numbered() -> Sequence[tuple[int, Line]]:
    return tuple(enumerate(PLAN.lines))


def _stops(line: Line, traffic: Traffic, mean: float, runs: int, seed: int) -> Ints:
    draw = bernoulli_stops if line.by_turns else share_stops
    return draw(line, traffic, mean, runs, seed)


def _alone(runs: int) -> Figure:
    """The sum over all lines bounds a rollout's chance, whatever they have to do with another."""
    exactly = worst = 0.0
    for i, line in _numbered():
        if line.by_turns:
            found = exact.alarm_chance(line, BAKE, max(2_000, runs // 5), 50 + i)
            worst += found.value + 1.645 * found.error
            exactly += exact.stop_law(line, line.limit, BAKE).sum()
        else:
            stops = share_stops(line, Traffic(BAKE), line.limit, runs, 50 + i)
            worst += upper_bound("", int((stops != NEVER).sum()), runs, 1.0).value or 0.0
    told = (
        f"sum of the lines' upper 95 % bounds; exactly, without restarts and shares, {exactly:.2g}"
    )
    line = BUDGET if runs >= RUNS else None
    return Figure("false alarms of a rollout, each request alone", worst, "", line, told)


# ---------------------------------------------------------------- how soon
def _medians(
    line: Line, promised: dict[float, tuple[int, int]], requests: int, what: str
) -> Iterator[Figure]:
    """Exact medians at the full budget, those at the line's share of it beside them."""
    for mean, (median, p95) in promised.items():
        full = peers.of_law(exact.stop_law(_full(line), mean, requests))
        own = peers.of_law(exact.stop_law(line, mean, requests))
        told = f"median/p95: {full}, promised {median}/{p95}; at a line's share of the budget {own}"
        bar = f"requests on A until {mean:.0%} {what} are called, median"
        yield Figure(bar, _number(full.median), "requests", round(NEAR * median, 1), told)


def _number(count: int) -> float:
    return math.inf if count == NEVER else float(count)


def _peers(runs: int) -> Iterator[Figure]:
    """The same canary before others, in this run."""
    for mean in FAULT_RATES:
        ours = peers.of_law(exact.stop_law(_full(PLAN.faults), mean, LONG_BAKE))
        told = (
            f"p95 {ours.p95}; SPRT against 1 %: {peers.ratio_test(mean, LONG_BAKE, BUDGET)}; "
            f"60 s window: {peers.window(mean, LONG_BAKE, 500, 3)}; "
            f"10,000 block: {peers.block(mean, LONG_BAKE)}"
        )
        yield Figure(
            f"beside peers: until {mean:.0%} faults are called",
            _number(ours.median),
            "requests on A",
            None,
            told,
        )
    for mean in (0.002, 0.004, 0.005):
        law = exact.stop_law(_full(PLAN.faults), mean, LONG_BAKE)
        told = (
            f"SPRT {peers.ratio_test(mean, LONG_BAKE, BUDGET).share:.1g}; "
            f"60 s window {peers.window(mean, LONG_BAKE, runs, 4).share:.0%}; "
            f"10,000 block {peers.block(mean, LONG_BAKE).share:.0%}"
        )
        bar = f"beside peers: false alarms at a true {mean:.1%}"
        yield _per_thousand(Figure(bar, float(law.sum()), "", BUDGET, told))


def _sessions(runs: int) -> Iterator[Figure]:
    """What hanging together costs: it is evidence that is not there."""
    alone = Traffic(BAKE)
    for mean in (0.02, 0.05, 0.20):
        kinds = {
            "alone": alone,
            "threes": Traffic(BAKE, 3.0, 0.1),
            "tens": SESSIONS,
            "tens, independent": Traffic(BAKE, 10.0),
        }
        medians = {
            name: _median(bernoulli_stops(_full(PLAN.faults), traffic, mean, runs, 9))
            for name, traffic in kinds.items()
        }
        told = ", ".join(f"{name} {median:g}" for name, median in medians.items())
        bar = f"until {mean:.0%} faults in sessions of ten, correlated 0.1, median"
        yield Figure(bar, medians["tens"], "requests on A", None, told)
    for mean in (0.15, 0.30, 0.60):
        medians = [
            _median(share_stops(_full(PLAN.residency), traffic, mean, runs, 9))
            for traffic in (SESSIONS, alone)
        ]
        bar = f"until a miss share of {mean:.0%} is called, sessions of ten, median"
        yield Figure(bar, medians[0], "requests on A", None, f"alone {medians[1]:g}")
    changing = Traffic(BAKE, changes_at=BAKE // 2, before=0.002)
    stops = bernoulli_stops(_full(PLAN.faults), changing, 0.20, runs, 10)
    late = stops[(stops > BAKE // 2)] - BAKE // 2
    bar = "until 20 % faults that begin in mid-bake are called, median"
    yield Figure(
        bar, _median(late), "requests on A", None, "without restarts the clean half weighs"
    )


def _median(stops: Ints) -> float:
    return _number(int(np.sort(stops)[(len(stops) - 1) // 2]))


# ---------------------------------------------------------------- promotion
def _promotion(runs: int) -> Iterator[Figure]:
    """Healthy A at 20 requests a second: 0.2 % faults, latencies and misses well inside."""
    missed = 0.0
    means = {PLAN.faults.limit: 0.002, 0.05: 0.02, 0.01: 0.003}
    for line in (line for line in PLAN.lines if line.by_turns):
        mean = means[line.limit]
        missed += 1.0 - exact.health_chance(line, mean, HEALTHY_BAKE)
        missed += float(exact.stop_law(line, mean, HEALTHY_BAKE).sum())
    told = "all lines but residency have their evidence at the end and none was called; exact"
    yield Figure(
        "healthy rollouts promoted, each request alone", 1.0 - missed, "", 0.99, told,
        Direction.AT_LEAST,
    )  # fmt: skip
    folds = 5 if runs < 1_000 else 50  # seconds each
    whole = sum(promoted(PLAN, HEALTHY_BAKE, seed) for seed in range(folds))
    yield share("... through the fold itself, residency among the lines", whole, folds)
    for turns in (3.0, 10.0):
        traffic = Traffic(HEALTHY_BAKE, turns, 0.1)
        twice = Traffic(2 * HEALTHY_BAKE, turns, 0.1)
        passed = [int(healthy(PLAN.faults, t, 0.002, runs, 11).sum()) for t in (traffic, twice)]
        told = f"a session proves health once, however long; in two bakes {passed[1] / runs:.0%}"
        yield share(f"... in sessions of {turns:.0f}, correlated 0.1", passed[0], runs, told)
    for turns in (3.0, 10.0):
        traffic, limit = Traffic(HEALTHY_BAKE, turns, 0.1), PLAN.faults.limit
        ever = int(ever_healthy(PLAN.faults, traffic, limit, 5 * runs, 12).sum())
        bar = f"evidence of health at the limit itself, at any moment, sessions of {turns:.0f}"
        yield upper_bound(bar, ever, 5 * runs, PLAN.faults.pass_alpha)


# ---------------------------------------------------------------- whose fault
def _blame(runs: int) -> Iterator[Figure]:
    """A at 5 % of the traffic, when its breach is called."""
    for a, b, wanted, bar in (
        (0.20, 0.002, True, "A's own 20 % faults end in quarantine"),
        (0.05, 0.002, True, "A's own 5 % faults end in quarantine"),
        (0.20, 0.20, False, "20 % faults that B shares end without quarantine"),
        (0.05, 0.05, False, "5 % faults that B shares end without quarantine"),
    ):
        right = sum(_quarantined(a, b, seed) is wanted for seed in range(runs))
        yield recall(bar, right, runs, 0.9, "")
    both = sum(_quarantined(0.30, 0.05, seed) for seed in range(runs))
    told = "the few faults that call A seldom prove more; the rest are held at 0 for a human"
    yield share("A's 30 % faults beside 5 % of B end in quarantine", both, runs, told)


def _quarantined(a: float, b: float, seed: int) -> bool:
    """Whether A is blamed, by default or by evidence, when it is called."""
    rng = np.random.default_rng(seed)
    canary, stable, attribution = LineTest(PLAN.faults), LineTest(PLAN.faults), Attribution()
    request = 0
    while canary.verdict is not Verdict.BREACH:
        request += 1
        on_a = bool(rng.random() < 0.05)
        bad = bool(rng.random() < (a if on_a else b))
        attribution.take(canary=on_a, bad=bad, route_epoch=1)
        (canary if on_a else stable).observe(float(bad), f"r{request}")
    return stable.verdict is not Verdict.BREACH or attribution.blames_canary


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
