"""The degradation ladder as a table of decisions, and what holds whatever fires."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.decide import Hold, decide
from alerts.firing import Firing
from alerts.forecast import History, Load, kept_s
from alerts.ladder import Ladder, Mode, Move, Stair, rebuild
from alerts.names import AlertName
from alerts.parts import ACTION_OF, LOAD_PARTS, Part
from monitors import rungs
from monitors.contract import Admission, KvRung, Level, MediaRung, Shed
from monitors.labels import Action
from monitors.redlines import LadderLines
from tests.unit.alerts.ladder_run import (
    CACHE,
    DWELL_S,
    EXHAUSTED,
    LATENCY,
    LINES,
    RELAPSE_S,
    SLOW,
    START,
    Run,
    alert,
    relapse,
)


def test_the_parts_are_in_the_order_of_the_named_rungs() -> None:
    given_up = [[p for p in Part if getattr(level, p)] for level in rungs.RUNGS]
    first = [next(i for i, parts in enumerate(given_up) if part in parts) for part in Part]
    assert first == sorted(first)


# ---------------------------------------------------------------- each alert, its own part
@pytest.mark.parametrize(
    ("firing", "level"),
    [
        ([], Level()),
        ([SLOW], Level(shed=Shed.ON)),
        ([LATENCY], Level(media=MediaRung.P360_8K)),
        ([CACHE], Level(kv=KvRung.INT8)),
        ([EXHAUSTED], Level(admission=Admission.LIMITED)),
        ([LATENCY, CACHE], Level(media=MediaRung.P360_8K, kv=KvRung.INT8)),
        ([LATENCY, LATENCY], Level(media=MediaRung.P360_8K)),
        ([alert(Action.ROLL_BACK), alert(Action.NONE)], Level()),
        ([alert(action, "v2") for action in ACTION_OF.values()], Level()),
    ],
)
def test_an_alert_moves_its_own_part_of_its_own_version_at_once(
    firing: list[Firing], level: Level
) -> None:
    assert Run().tick(*firing).level == level


def test_parts_that_answer_to_load_come_back_the_harshest_first_a_dwell_each() -> None:
    run = Run().for_s(DWELL_S + 1, SLOW, LATENCY, EXHAUSTED)
    quiet_from, before = run.now - 1, len(run.moves)
    run.for_s(6 * DWELL_S)
    assert [(m.part, m.rung, m.at - quiet_from) for m in run.moves[before:]] == [
        (Part.ADMISSION, 0, DWELL_S),
        (Part.MEDIA, 1, 2 * DWELL_S),
        (Part.MEDIA, 0, 3 * DWELL_S),
        (Part.SHED, 0, 4 * DWELL_S),
    ]


def test_memory_comes_back_whatever_load_does() -> None:
    run = Run().tick(LATENCY, CACHE).for_s(DWELL_S + 1, LATENCY)
    assert run.level.kv is KvRung.NATIVE
    assert run.level.media is MediaRung.P160_8K


def test_nothing_that_answers_to_load_comes_back_while_a_milder_alert_fires() -> None:
    run = Run().tick(LATENCY).for_s(5 * DWELL_S, SLOW)
    assert run.level == Level(media=MediaRung.P360_8K, shed=Shed.ON)
    assert Hold.FIRING in run.held_by(Part.MEDIA) or Hold.DWELL in run.held_by(Part.MEDIA)


def test_media_goes_on_to_the_floor_when_a_dwell_was_no_help():
    run = Run().for_s(DWELL_S, LATENCY)
    assert run.level.media is MediaRung.P360_8K
    assert run.tick(LATENCY).level.media is MediaRung.P160_8K
    assert run.for_s(10 * DWELL_S, LATENCY).level.media is MediaRung.P160_8K


def test_an_easing_that_was_wrong_is_undone_at_once():
    run = Run().tick(LATENCY).for_s(DWELL_S, LATENCY)
    assert run.level.media is MediaRung.P160_8K
    while run.level.media is MediaRung.P160_8K:
        run.tick()
    assert run.tick(LATENCY).level.media is MediaRung.P160_8K


def test_kv_has_one_rung_and_stays_on_it():
    assert Run().for_s(10 * DWELL_S, CACHE).level == Level(kv=KvRung.INT8)


def test_recovery_is_a_rung_at_a_time_a_dwell_each():
    run = Run().for_s(DWELL_S + 1, LATENCY)
    quiet_from = run.now - 1
    run.for_s(4 * DWELL_S)
    assert [(move.rung, move.at - quiet_from) for move in run.moves[2:]] == [
        (MediaRung.P360_8K, DWELL_S),
        (MediaRung.FULL, 2 * DWELL_S),
    ]


def test_an_alert_that_comes_back_for_a_moment_starts_the_dwell_again():
    run = Run().tick(CACHE).for_s(DWELL_S - 1).tick(CACHE).for_s(DWELL_S - 1)
    assert run.level.kv is KvRung.INT8
    assert run.tick().level.kv is KvRung.NATIVE


# ---------------------------------------------------------------- relapses
def test_the_dwell_doubles_with_each_relapse_up_to_its_most():
    ample = LINES.ladder.model_copy(update={"moves_per_hour": 60})
    run = Run(lines=LINES.model_copy(update={"ladder": ample}))
    dwells = [relapse(run) for _ in range(7)]
    assert dwells == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0]


def test_a_breach_long_after_the_last_is_no_relapse():
    run = Run()
    assert relapse(run) == DWELL_S
    run.for_s(RELAPSE_S)
    assert relapse(run) == DWELL_S


def test_the_second_rung_of_a_relapse_does_not_double_again():
    run = Run()
    relapse(run)
    run.for_s(DWELL_S + 1, LATENCY)
    assert run.level.media is MediaRung.P160_8K
    assert run.ladder.stairs[Part.MEDIA].dwell_s == 2 * DWELL_S


# ---------------------------------------------------------------- what is not known, and modes
def test_while_nobody_watches_nothing_moves_and_the_dwell_starts_again():
    run = Run().tick(LATENCY)
    for _ in range(200):
        decision = decide(run.ladder, None, run.history, run.now, LINES)
        assert decision.moves == ()
        run.ladder, run.now = decision.ladder, run.now + 1.0
    run.for_s(DWELL_S - 1)
    assert run.level.media is MediaRung.P360_8K
    assert run.tick().level.media is MediaRung.FULL


@pytest.mark.parametrize("back_s", [3_600.0, 30.0])
def test_a_clock_that_is_set_back_holds_the_ladder_no_longer_than_a_dwell_more(back_s: float):
    run = Run().tick(LATENCY)
    run.now -= back_s
    assert run.for_s(2 * DWELL_S).level.media is MediaRung.FULL
    run.tick(LATENCY)
    run.now -= back_s
    assert run.for_s(2 * DWELL_S, LATENCY).level.media is MediaRung.P160_8K


def test_frozen_holds_in_both_directions():
    run = Run().for_s(2 * DWELL_S, LATENCY, CACHE, SLOW, EXHAUSTED, mode=Mode.FROZEN)
    assert run.level == Level()
    run.tick(LATENCY).for_s(2 * DWELL_S, mode=Mode.FROZEN)
    assert run.level.media is MediaRung.P360_8K


def test_a_dry_run_says_what_it_would_do_and_stays():
    decision = decide(Run().ladder, [LATENCY], History(), START, LINES, mode=Mode.DRY_RUN)
    assert decision.dry_run
    assert [(move.part, move.rung) for move in decision.moves] == [(Part.MEDIA, 1)]
    assert decision.ladder.level == Level()


def test_every_move_says_why_and_what_was_seen():
    load = Load(p99_s=0.52, busy_share=0.1, per_s=10.0)
    run = Run(load=load).tick(LATENCY)
    run.load = Load()
    run.for_s(DWELL_S)
    assert [move.reason for move in run.moves] == [
        AlertName.LATENCY_DEGRADE,
        "quiet for 60 s; then expected: p99 unknown",
    ]
    assert [move.seen.told() for move in run.moves] == ["p99 520 ms, 10.0 requests/s, 10% busy", ""]


# ---------------------------------------------------------------- the journal
def test_a_restart_forgets_nothing_but_how_long_it_was_quiet():
    run = Run()
    relapse(run)
    run.for_s(DWELL_S + 1, LATENCY).for_s(100)
    again = Run(ladder=rebuild("v1", run.moves, run.now, LINES.ladder), now=run.now)
    assert again.level == run.level
    assert again.ladder.stairs[Part.MEDIA].dwell_s == run.ladder.stairs[Part.MEDIA].dwell_s
    assert again.for_s(2 * DWELL_S - 1).moves == []
    assert again.for_s(2).level.media is MediaRung.P360_8K


def test_a_ladder_is_no_fold_over_other_versions_moves():
    other = Move(at=START, version="v2", part=Part.KV, rung=1, reason="")
    assert rebuild("v1", [other], START, LINES.ladder).level == Level()


firings = st.lists(
    st.builds(alert, st.sampled_from(Action), st.sampled_from(["v1", "v2"])), max_size=3
)
shares = st.one_of(st.none(), st.floats(0.0, 1.0))
loads = st.builds(
    Load,
    p99_s=st.one_of(st.none(), st.floats(0.0, 2.0)),
    busy_share=shares,
    per_s=st.one_of(st.none(), st.floats(0.0, 100.0)),
    live_gb=st.one_of(st.none(), st.floats(0.0, 60.0)),
)
steps = st.lists(
    st.tuples(
        st.one_of(st.none(), firings),
        loads,
        st.floats(0.0, 300.0),
        st.sampled_from([Mode.LIVE, Mode.LIVE, Mode.LIVE, Mode.FROZEN, Mode.DRY_RUN]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_whatever_fires_the_ladder_never_flaps_faster_than_its_dwell_or_its_budget(script):
    ladder, history, now = rebuild("v1", (), 0.0, LINES.ladder), History(), 0.0
    events = []
    for firing, load, wait_s, mode in script:
        now += wait_s
        history = history.noted(now, load, kept_s(LINES.ladder))
        decision = decide(ladder, firing, history, now, LINES, mode=mode)
        actions = {f.action for f in firing or () if f.version == "v1"}
        worse = [m for m in decision.moves if m.rung > ladder.stairs[m.part].rung]
        better = [m for m in decision.moves if m.rung < ladder.stairs[m.part].rung]
        assert all(ACTION_OF[move.part] in actions for move in worse)
        assert not {ACTION_OF[move.part] for move in better} & actions
        assert all(abs(m.rung - ladder.stairs[m.part].rung) == 1 for m in decision.moves)
        assert sum(move.part in LOAD_PARTS for move in better) <= 1, "one at a time"
        for move in better:
            assert ladder.stairs[move.part].spent(now) < LINES.ladder.moves_per_hour
        events += [] if decision.measured is None else [decision.measured]
        if mode is Mode.LIVE:
            events += decision.moves
        else:
            assert decision.ladder.level == ladder.level
        ladder = decision.ladder
    moves = [event for event in events if isinstance(event, Move)]
    for part in Part:
        assert_well_spaced([move for move in moves if move.part is part], LINES.ladder)
    assert journalled(rebuild("v1", events, now, LINES.ladder)) == journalled(ladder)


def journalled(ladder: Ladder) -> dict[Part, Stair]:
    seen = {"fired_at": 0.0, "crossed_at": None}
    return {part: replace(stair, **seen) for part, stair in ladder.stairs.items()}


def assert_well_spaced(moves: list[Move], lines: LadderLines) -> None:
    """Only a worsening that undoes an easing may follow another move within a dwell."""
    rungs = [0, *(move.rung for move in moves)]
    went = [after > before for before, after in pairwise(rungs)]  # to a worse rung
    for i, (before, move) in enumerate(pairwise(moves)):
        undoes = went[i + 1] and not went[i]
        if not undoes:
            assert move.at - before.at >= lines.dwell_s
