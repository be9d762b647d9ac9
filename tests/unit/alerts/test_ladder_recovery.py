"""When a rung is given back: forecasts, what is remembered, the budget, and a human's hand."""

import pytest

from alerts.decide import Hold
from alerts.forecast import Load
from alerts.ladder import OverrideEnded
from alerts.overrides import Override
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, Admission, KvRung, Level, MediaRung, SessionClass, Shed
from tests.unit.alerts.ladder_run import (
    CACHE,
    DWELL_S,
    EXHAUSTED,
    LATENCY,
    LINES,
    SLOW,
    Run,
    relapse,
)

# ---------------------------------------------------------------- forecasts
CALM = Load(p99_s=0.05, busy_share=0.1, per_s=10.0)


def test_media_waits_while_the_line_would_be_crossed_and_comes_back_a_dwell_after() -> None:
    run = Run().tick(LATENCY)
    run.load = Load(p99_s=0.3, busy_share=0.6, per_s=10.0)
    run.for_s(10 * DWELL_S)
    assert run.level.media is MediaRung.P360_8K
    assert run.held_by(Part.MEDIA) == (Hold.FORECAST,)
    run.load = CALM
    run.for_s(DWELL_S - 1)
    assert run.level.media is MediaRung.P360_8K, "of many looks the luckiest is inside the line"
    assert run.for_s(2).level.media is MediaRung.FULL
    assert run.moves[-1].reason == "quiet for 660 s; then expected: p99 150 ms"
    assert run.moves[-1].seen == CALM


def test_a_peak_is_remembered_while_its_trough_lasts() -> None:
    """40 requests a second kept the server busy; the 10 of now would fit, the next peak not."""
    run = Run(load=Load(p99_s=0.5, busy_share=0.95, per_s=40.0)).for_s(10, LATENCY)
    run.load = CALM
    run.for_s(LINES.ladder.memory_s - 60.0)
    assert run.level.media is MediaRung.P360_8K
    run.for_s(60.0 + DWELL_S)
    assert run.level.media is MediaRung.FULL


def test_a_memory_longer_than_an_hour_is_kept_as_long() -> None:
    ladder = LINES.ladder.model_copy(update={"memory_s": 7_200.0, "trust_s": 86_400.0})
    run = Run(lines=LINES.model_copy(update={"ladder": ladder}))
    run.load = Load(p99_s=0.5, busy_share=0.95, per_s=40.0)
    run.for_s(10, LATENCY)
    run.load = CALM
    run.for_s(7_200.0 - 60.0)
    assert run.level.media is MediaRung.P360_8K
    assert run.for_s(60.0 + DWELL_S).level.media is MediaRung.FULL


FEW = Load(busy_share=0.1, per_s=1.0)


def test_in_a_trough_of_too_few_requests_what_was_told_last_stands() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.5, per_s=5.0)).tick(LATENCY)
    run.load = Load(p99_s=0.3, busy_share=0.3, per_s=5.0)
    run.for_s(2 * LINES.latency.window_s)
    run.load = FEW
    run.for_s(LINES.ladder.memory_s - DWELL_S)
    assert run.level.media is MediaRung.P360_8K
    assert run.held_by(Part.MEDIA) == (Hold.FORECAST,)
    assert run.for_s(3 * DWELL_S).level.media is MediaRung.FULL, "a load is remembered no longer"


def test_what_was_told_before_the_alerts_had_gone_does_not_stand() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.5, per_s=5.0)).for_s(30, LATENCY)
    run.load = FEW
    assert run.for_s(DWELL_S + 1).level.media is MediaRung.FULL


def test_a_slow_engine_that_is_mended_is_not_held_by_its_bad_time() -> None:
    """As many requests as before, and none too much for it: only the dwell holds."""
    run = Run(load=Load(p99_s=2.0, busy_share=0.9, per_s=10.0)).for_s(30, LATENCY)
    run.load = CALM
    assert run.for_s(DWELL_S + 1).level.media is MediaRung.FULL


def test_a_quiet_night_forgets_yesterday() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.95, per_s=40.0)).tick(LATENCY)
    run.load = Load()
    assert run.for_s(DWELL_S + 1).level.media is MediaRung.FULL
    assert run.moves[-1].reason.endswith("p99 unknown")


def test_a_forecast_that_alone_holds_a_quiet_rung_is_put_to_the_test() -> None:
    run = Run().tick(LATENCY)
    run.load = Load(p99_s=0.3, busy_share=0.6, per_s=10.0)
    run.for_s(LINES.ladder.trust_s - 1)
    assert len(run.moves) == 1
    run.for_s(2)
    assert run.level.media is MediaRung.FULL
    assert "to test the forecast: a queue without end" in run.moves[-1].reason
    run.tick(LATENCY).for_s(LINES.ladder.trust_s + DWELL_S)
    assert run.level.media is MediaRung.P360_8K, "it was right: the next test is twice as far off"


def test_what_a_rung_is_good_for_is_measured_once_a_window_lies_behind_it() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.9, per_s=10.0)).tick(LATENCY)
    assert run.ladder.stairs[Part.MEDIA].ratio(LINES.ladder) == 2.5, "assumed"
    run.load = Load(p99_s=0.1, busy_share=0.5, per_s=10.0)
    run.for_s(LINES.latency.window_s + 1)
    assert run.ladder.stairs[Part.MEDIA].ratio(LINES.ladder) == pytest.approx(1.8)


def test_a_worsening_out_of_a_window_of_two_rungs_measures_nothing() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.9, per_s=10.0)).tick(LATENCY)
    run.load = Load()
    run.for_s(DWELL_S + 1)  # back at full, and at once down again
    run.load = Load(p99_s=0.5, busy_share=0.5, per_s=10.0)
    run.tick(LATENCY).for_s(2 * LINES.latency.window_s)
    assert run.ladder.stairs[Part.MEDIA].ratios == {}


@pytest.mark.parametrize(
    ("load", "recovers"),
    [
        (Load(), True),
        (Load(live_gb=LINES.cache.gpu_mem_gb), True),
        (Load(live_gb=LINES.cache.gpu_mem_gb + 0.1), False),
        (Load(live_gb=1.0, native_gb=LINES.cache.gpu_mem_gb + 0.1), False),
        (Load(live_gb=20.0, native_gb=LINES.cache.gpu_mem_gb), True),
        (Load(p99_s=1e9, busy_share=1.0, per_s=1.0), True),
    ],
)
def test_kv_waits_while_native_pages_would_not_fit(load: Load, recovers: bool) -> None:
    run = Run(load=load).tick(CACHE).for_s(2 * DWELL_S)
    assert (run.level.kv is KvRung.NATIVE) is recovers


@pytest.mark.parametrize(("busy", "recovers"), [(0.74, True), (0.76, False), (None, True)])
def test_shedding_ends_where_nothing_would_be_shed(busy: float | None, recovers: bool) -> None:
    run = Run(load=Load(busy_share=busy, per_s=10.0)).tick(SLOW).for_s(2 * DWELL_S)
    assert (run.level.shed is Shed.OFF) is recovers


def test_admission_opens_when_the_load_of_before_it_would_fit() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.97, per_s=40.0)).tick(EXHAUSTED)
    run.load = Load(p99_s=0.1, busy_share=0.5, per_s=20.0)
    run.for_s(5 * DWELL_S)
    assert run.level.admission is Admission.LIMITED
    run.load = Load(p99_s=0.1, busy_share=0.3, per_s=20.0)
    assert run.for_s(DWELL_S + 1).level.admission is Admission.OPEN


# ---------------------------------------------------------------- the budget
def test_a_spent_budget_forbids_easing_and_never_a_worsening() -> None:
    run = Run()
    for _ in range(3):
        relapse(run)
    run.tick(LATENCY)
    spent = len(run.moves)
    run.for_s(20 * DWELL_S)
    assert Hold.BUDGET in run.held_by(Part.MEDIA)
    assert len(run.moves) == spent
    run.for_s(DWELL_S, LATENCY).tick(LATENCY)
    assert run.level.media is MediaRung.P160_8K
    run.for_s(3_600.0)
    assert run.level.media is not MediaRung.P160_8K


# ---------------------------------------------------------------- overrides
def override(run: Run, for_s: float, classes=ALL_CLASSES, **parts: int) -> Override:
    return Override(
        at=run.now, until=run.now + for_s, version="v1", classes=tuple(classes),
        parts={Part(part): rung for part, rung in parts.items()}, actor="ann", reason="a fair",
    )  # fmt: skip


def held(run: Run, for_s: float, classes=ALL_CLASSES, **parts: int) -> Run:
    run.ladder = run.ladder.after(override(run, for_s, classes, **parts), LINES.ladder)
    return run


def test_an_override_holds_its_parts_in_both_directions_and_no_others() -> None:
    run = held(Run(), 600.0, media=1).for_s(599, LATENCY, CACHE)
    assert run.level == Level(media=MediaRung.P360_8K, kv=KvRung.INT8)
    assert run.held_by(Part.MEDIA)[0] is Hold.OVERRIDE
    run.tick()
    assert Hold.OVERRIDE not in run.held_by(Part.MEDIA)


def test_what_a_human_holds_is_told_part_by_part_and_class_by_class() -> None:
    interactive, batch = (SessionClass.INTERACTIVE,), (SessionClass.BATCH,)
    run = held(Run(), 600.0, media=1, kv=0)
    assert run.ladder.by_hand(interactive, run.now) == ("media", "kv")
    assert run.ladder.by_hand(interactive, run.now + 600.0) == ()
    run = held(Run(), 600.0, batch, media=2)
    assert run.ladder.by_hand(interactive, run.now) == ()
    assert run.ladder.by_hand((*interactive, *batch), run.now) == ("media",)
    assert Run().ladder.by_hand(batch, 0.0) == ()


def test_after_an_override_the_ladder_goes_on_from_there_by_its_own_rules() -> None:
    run = held(Run(), 600.0, media=2).for_s(601)
    assert run.level.media is MediaRung.P360_8K, "its dwell was over: a rung, and no more"
    run.for_s(DWELL_S)
    assert run.level.media is MediaRung.FULL
    run = held(Run(), 600.0, media=1).for_s(601, LATENCY)
    assert run.level.media is MediaRung.P160_8K


def test_an_override_that_is_cleared_ends_at_once() -> None:
    run = held(Run(), 600.0, media=1).for_s(10)
    ended = OverrideEnded(at=run.now, version="v1", actor="ann", reason="cleared")
    run.ladder = run.ladder.after(ended, LINES.ladder)
    assert run.for_s(DWELL_S).level.media is MediaRung.FULL


def test_an_override_of_one_class_lies_over_the_ladder_and_leaves_it_alone() -> None:
    run = held(Run(), 600.0, [SessionClass.BATCH], media=2, admission=1)
    batch = Level(media=MediaRung.P160_8K, admission=Admission.LIMITED)
    assert run.ladder.level_of(SessionClass.BATCH, run.now) == batch
    assert run.ladder.level_of(SessionClass.INTERACTIVE, run.now) == Level()
    run.tick(LATENCY)
    assert run.ladder.level_of(SessionClass.INTERACTIVE, run.now) == run.level != Level()
    assert run.ladder.level_of(SessionClass.BATCH, run.now) == batch
    run.now += 600.0
    assert run.ladder.level_of(SessionClass.BATCH, run.now) == run.level


def test_what_a_human_does_is_no_relapse_and_costs_no_budget() -> None:
    run = held(Run().tick(LATENCY), 5.0, media=0).for_s(6)
    run.tick(LATENCY)
    assert run.ladder.stairs[Part.MEDIA].dwell_s == DWELL_S
    assert len(run.ladder.stairs[Part.MEDIA].moves) == 2


def test_a_hand_on_a_harsher_part_keeps_no_milder_one() -> None:
    run = held(Run().tick(LATENCY), 4 * 3600.0, admission=1)
    run.for_s(DWELL_S + 2)
    assert run.level == Level(admission=Admission.LIMITED)


# ---------------------------------------------------------------- admission limited for memory
EXHAUSTED_AFTER_S = DWELL_S + 180.0


def pool_run(seconds: float, asked_gb: float = 60.0) -> Run:
    """A pool of which open admission asks more than int8 gives, and limited admission half;
    nothing is slow. Each alert fires while its line is crossed."""
    run, crossed_s = Run(), 0.0
    end = run.now + seconds
    while run.now < end:
        share = 0.5 if run.level.admission else 1.0
        native_gb = asked_gb * share
        live_gb = native_gb / (2 if run.level.kv else 1)
        crossed_s = crossed_s + 1.0 if live_gb > LINES.cache.gpu_mem_gb else 0.0
        run.load = Load(
            p99_s=0.2, busy_share=0.4 * share, per_s=20.0 * share, live_gb=live_gb,
            native_gb=native_gb,
        )  # fmt: skip
        firing = [CACHE] * (crossed_s > 30.0) + [EXHAUSTED] * (crossed_s > EXHAUSTED_AFTER_S)
        run.tick(*firing)
    return run


def test_admission_that_was_limited_for_memory_waits_until_the_memory_would_do() -> None:
    run = pool_run(LINES.ladder.memory_s)
    assert run.level == Level(kv=KvRung.INT8, admission=Admission.LIMITED)
    assert run.held_by(Part.ADMISSION) == (Hold.FORECAST,)
    assert len(pool_run(4 * 3_600.0).moves) <= 2 * 4, "what was 20 moves in four hours"


def test_native_pages_come_back_after_the_admission_that_was_limited_for_memory() -> None:
    run = pool_run(LINES.ladder.memory_s)
    run.load = Load(p99_s=0.1, busy_share=0.1, per_s=20.0, live_gb=5.0, native_gb=10.0)
    before = len(run.moves)
    run.for_s(3 * DWELL_S)
    (opened, native) = run.moves[before:]
    assert (opened.part, native.part) == (Part.ADMISSION, Part.KV)
    assert native.at - opened.at == DWELL_S


def test_native_pages_do_not_come_back_as_admission_is_limited() -> None:
    run = Run().tick(CACHE).for_s(DWELL_S - 1).tick(EXHAUSTED)
    assert run.level == Level(kv=KvRung.INT8, admission=Admission.LIMITED)


def test_admission_that_was_limited_for_load_asks_no_pool() -> None:
    run = Run(load=Load(p99_s=0.5, busy_share=0.9, per_s=20.0, live_gb=20.0)).tick(EXHAUSTED)
    run.load = Load(p99_s=0.1, busy_share=0.1, per_s=10.0, live_gb=20.0)
    assert run.for_s(DWELL_S + 1).level.admission is Admission.OPEN
