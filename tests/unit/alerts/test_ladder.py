"""The degradation ladder as a table of decisions, and what holds whatever fires."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.firing import Firing
from alerts.ladder import Forecast, Ladder, Mode, Move, Part, Stair, decide, rebuild
from alerts.policy import AlertName
from monitors.contract import KvRung, Level, MediaRung
from monitors.labels import Action
from monitors.redlines import LadderLines, RedLines

LINES = RedLines()
DWELL_S, RELAPSE_S = LINES.ladder.dwell_s, LINES.ladder.relapse_s
START = 1_000.0


def alert(action: Action, version: str = "v1") -> Firing:
    names = {
        Action.SHED: AlertName.FIRST_PACKET_SHED,
        Action.LIMIT_ADMISSION: AlertName.LADDER_EXHAUSTED,
        Action.DEGRADE_MEDIA: AlertName.LATENCY_DEGRADE,
        Action.QUANTISE_KV: AlertName.CACHE_BELOW_FLOOR,
        Action.ROLL_BACK: AlertName.FAULT_RATE,
        Action.NONE: AlertName.NO_DATA,
    }
    return Firing(
        alert=names[action],
        action=action,
        version=version,
        labels={"version": version},
        starts_at=0,
    )


LATENCY, CACHE = alert(Action.DEGRADE_MEDIA), alert(Action.QUANTISE_KV)


@dataclass
class Run:
    """A ladder driven second by second, and the moves it journalled."""

    ladder: Ladder = field(default_factory=lambda: rebuild("v1", (), START, LINES.ladder))
    now: float = START
    moves: list[Move] = field(default_factory=list[Move])

    def for_s(self, seconds: float, *firing: Firing, **options: object) -> "Run":
        end = self.now + seconds
        while self.now < end:
            self.tick(*firing, **options)
        return self

    def tick(self, *firing: Firing, **options: object) -> "Run":
        decision = decide(self.ladder, firing, self.now, LINES, **options)
        self.moves += decision.moves
        self.ladder = decision.ladder
        self.now += 1.0
        return self

    @property
    def level(self) -> Level:
        return self.ladder.level


# ---------------------------------------------------------------- each alert, its own part
@pytest.mark.parametrize(
    ("firing", "level"),
    [
        ([], Level()),
        ([LATENCY], Level(media=MediaRung.P360_8K)),
        ([CACHE], Level(kv=KvRung.INT8)),
        ([LATENCY, CACHE], Level(media=MediaRung.P360_8K, kv=KvRung.INT8)),
        ([LATENCY, LATENCY], Level(media=MediaRung.P360_8K)),
        ([alert(Action.ROLL_BACK), alert(Action.NONE)], Level()),
        ([alert(Action.DEGRADE_MEDIA, "v2"), alert(Action.QUANTISE_KV, "v2")], Level()),
    ],
)
def test_an_alert_moves_its_own_part_of_its_own_version_at_once(firing, level):
    assert Run().tick(*firing).level == level


def test_media_goes_on_to_the_floor_when_a_dwell_was_no_help():
    run = Run().for_s(DWELL_S, LATENCY)
    assert run.level.media is MediaRung.P360_8K
    assert run.tick(LATENCY).level.media is MediaRung.P160_8K
    assert run.for_s(10 * DWELL_S, LATENCY).level.media is MediaRung.P160_8K


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
def relapse(run: Run) -> float:
    """Fire once, be quiet until the ladder is back at full; how long that took, seconds."""
    run.tick(LATENCY)
    fired_at = run.now - 1
    while run.level.media is not MediaRung.FULL:
        run.tick()
    return run.moves[-1].at - fired_at


def test_the_dwell_doubles_with_each_relapse_up_to_its_most():
    run = Run()
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
@pytest.mark.parametrize(
    ("forecast", "recovers"),
    [
        (Forecast(), True),
        (Forecast(p99_s=LINES.latency.degrade_s), True),
        (Forecast(p99_s=LINES.latency.degrade_s + 0.001), False),
        (Forecast(live_gb=1e9), True),  # says nothing about media
    ],
)
def test_media_waits_while_the_forecast_is_over_the_line(forecast: Forecast, recovers: bool):
    run = Run().tick(LATENCY).for_s(2 * DWELL_S, forecast=forecast)
    assert (run.level.media is MediaRung.FULL) is recovers


@pytest.mark.parametrize(
    ("forecast", "recovers"),
    [
        (Forecast(), True),
        (Forecast(live_gb=LINES.cache.gpu_mem_gb), True),
        (Forecast(live_gb=LINES.cache.gpu_mem_gb + 0.1), False),
        (Forecast(p99_s=1e9), True),
    ],
)
def test_kv_waits_while_native_pages_would_not_fit(forecast: Forecast, recovers: bool):
    run = Run().tick(CACHE).for_s(2 * DWELL_S, forecast=forecast)
    assert (run.level.kv is KvRung.NATIVE) is recovers


def test_while_nobody_watches_nothing_moves_and_the_dwell_starts_again():
    run = Run().tick(LATENCY)
    for _ in range(200):
        decision = decide(run.ladder, None, run.now, LINES)
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
    run = Run().for_s(2 * DWELL_S, LATENCY, CACHE, mode=Mode.FROZEN)
    assert run.level == Level()
    run.tick(LATENCY).for_s(2 * DWELL_S, mode=Mode.FROZEN)
    assert run.level.media is MediaRung.P360_8K


def test_a_dry_run_says_what_it_would_do_and_stays():
    decision = decide(Run().ladder, [LATENCY], START, LINES, mode=Mode.DRY_RUN)
    assert decision.dry_run
    assert [(move.part, move.rung) for move in decision.moves] == [(Part.MEDIA, 1)]
    assert decision.ladder.level == Level()


def test_every_move_says_why():
    run = Run().tick(LATENCY).for_s(DWELL_S)
    assert [move.reason for move in run.moves] == [AlertName.LATENCY_DEGRADE, "quiet for 60 s"]


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
steps = st.lists(
    st.tuples(
        st.one_of(st.none(), firings),
        st.floats(0.0, 300.0),
        st.sampled_from([Mode.LIVE, Mode.LIVE, Mode.LIVE, Mode.FROZEN, Mode.DRY_RUN]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_whatever_fires_the_ladder_never_flaps_faster_than_its_dwell(script):
    ladder, now = rebuild("v1", (), 0.0, LINES.ladder), 0.0
    moves: list[Move] = []
    for firing, wait_s, mode in script:
        now += wait_s
        decision = decide(ladder, firing, now, LINES, mode=mode)
        actions = {f.action for f in firing or () if f.version == "v1"}
        for move in decision.moves:
            own = {Part.MEDIA: Action.DEGRADE_MEDIA, Part.KV: Action.QUANTISE_KV}[move.part]
            worse = move.rung > ladder.stairs[move.part].rung
            assert worse == (own in actions)
            assert abs(move.rung - ladder.stairs[move.part].rung) == 1
        if mode is Mode.LIVE:
            moves += decision.moves
        else:
            assert decision.ladder.level == ladder.level
        ladder = decision.ladder
    for part in Part:
        assert_well_spaced([move for move in moves if move.part is part], LINES.ladder)
    assert journalled(rebuild("v1", moves, now, LINES.ladder)) == journalled(ladder)


def journalled(ladder: Ladder) -> dict[Part, Stair]:
    return {part: replace(stair, fired_at=0.0) for part, stair in ladder.stairs.items()}


def assert_well_spaced(moves: list[Move], lines: LadderLines) -> None:
    """Only the step off full fidelity may follow another move within a dwell."""
    rung = 0
    for before, move in zip([None, *moves], moves, strict=False):
        if before is not None and rung > 0:
            assert move.at - before.at >= lines.dwell_s
        rung = move.rung
