"""A session is one unit of evidence, however its turns hang together, in bounded memory."""

import itertools
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.arm import Arm, ArmState, Turn
from rollout.sequential import WORSE_ODDS, Line, Verdict, alternatives, hazard, turn_gains
from rollout.sessions import MOST_SESSIONS, SLOT_S, UNIT_S

FAULTS = Line(name="faults", limit=0.005, alpha=1e-3, pass_alpha=0.05, min_sessions=3)
LOOSE = Line(name="loose", limit=0.3, alpha=1e-3, pass_alpha=0.05, min_sessions=3)
MISSES = Line(name="misses", limit=0.1, alpha=1e-3, pass_alpha=0.05, min_sessions=3, by_turns=False)
LINES = (FAULTS, LOOSE, MISSES)


def turn(y: float, session: str | None, at: float = 0.0, **other: object) -> Turn:
    whole: dict[str, object] = {
        "line": "faults",
        "y": y,
        "request": f"{session} {at}",
        "session": session,
        "at": at,
        "counts_as_health": True,
        **other,
    }
    return Turn(**whole)  # type: ignore[arg-type]


def after(*turns: Turn) -> Arm:
    arm = Arm(LINES)
    for each in turns:
        arm.take(each)
    return arm


# ------------------------------------------------------------ bets on turns
@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_no_dependence_within_a_session_makes_its_bets_on_turns_gain(turns: int) -> None:
    """Over all joint laws of a session's turns with each bad at most at the limit, the most that
    E may be expected to be is 1: a linear programme over the laws, by scipy."""
    from scipy.optimize import linprog

    histories = list(itertools.product((0, 1), repeat=turns))
    means = alternatives(LOOSE.limit, WORSE_ODDS)
    for grid in range(len(means)):
        gains = [_session_gain(history, grid) for history in histories]
        bad = np.array(histories, dtype=float).T
        best = linprog(
            -np.exp(gains),
            A_ub=bad,
            b_ub=np.full(turns, LOOSE.limit),
            A_eq=np.ones((1, len(histories))),
            b_eq=[1.0],
        )
        assert -best.fun <= 1.0 + 1e-9


def _session_gain(history: tuple[int, ...], grid: int) -> float:
    gain = 0.0
    for i, bad in enumerate(history):
        gain += float(turn_gains(LOOSE.limit, i, bad=bool(bad))[grid])
        if bad:
            break
    return gain


def test_plain_bets_on_every_turn_would_gain_where_turns_hang_together() -> None:
    """What the rule is for: sessions that are bad throughout or not at all, at the limit."""
    gain = (
        np.exp(turn_gains(LOOSE.limit, 0, bad=True)),
        np.exp(turn_gains(LOOSE.limit, 0, bad=False)),
    )
    all_alike = LOOSE.limit * gain[0] ** 4 + (1.0 - LOOSE.limit) * gain[1] ** 4
    assert np.all(all_alike > 1.2)


def test_a_clean_turn_may_have_used_up_the_sessions_good_luck() -> None:
    assert hazard(0.005, 0) == 0.005
    assert hazard(0.005, 10) == pytest.approx(0.005 / 0.95)
    assert hazard(0.3, 4) == 1.0
    assert not turn_gains(0.3, 4, bad=True).any(), "anything may be, so nothing is bet"
    assert not turn_gains(0.3, 4, bad=False).any()


def test_a_session_tells_of_its_first_bad_turn_only() -> None:
    arm = Arm(LINES)
    assert arm.take(turn(1.0, "s"))
    e = arm.test("faults").log_e
    told = [arm.take(turn(1.0, "s", float(at))) for at in range(1, 9)]
    assert not any(told)
    assert arm.test("faults").log_e == e
    assert arm.test("faults").observations == 9, "people see all of them"


def test_turns_without_a_session_are_sessions_of_their_own() -> None:
    alone = after(*(turn(1.0, None, request=f"r{i}") for i in range(9)))
    one = after(*(turn(1.0, "s", float(i)) for i in range(9)))
    assert alone.test("faults").verdict is Verdict.BREACH
    assert one.test("faults").verdict is Verdict.INCONCLUSIVE
    assert alone.test("faults").log_e == alone.test("faults").log_e_sessions


def test_three_sessions_are_the_least_that_call_a_breach() -> None:
    loose = Line(name="faults", limit=1e-4, alpha=0.1, pass_alpha=0.05, min_sessions=3)
    arm = Arm((loose,))
    for i in range(2):
        arm.take(turn(1.0, f"s{i}"))
    numbers = arm.test("faults").numbers()
    assert numbers.e > 10 * numbers.threshold
    assert (numbers.verdict, numbers.bad_sessions) == (Verdict.INCONCLUSIVE, 2)
    arm.take(turn(1.0, "s2"))
    assert arm.test("faults").verdict is Verdict.BREACH


# ------------------------------------------------------------ bets on sessions
def test_sessions_that_are_bad_throughout_are_called_though_their_later_turns_tell_nothing() -> (
    None
):
    """One session in twenty, all ten turns of it: of first bad turns that is a rate of 0.5 %."""
    arm = Arm(LINES)
    for i in range(600):
        for k in range(10):
            arm.take(turn(float(i % 20 == 0), f"s{i}", i * 1.0 + k / 10))
    arm.pass_time(1e4)
    assert arm.test("faults").log_e < np.log(100)
    assert arm.test("faults").verdict is Verdict.BREACH
    numbers = arm.test("faults").numbers()
    assert numbers.e >= numbers.threshold == pytest.approx(10_000.0)


def test_a_mean_is_bet_on_once_when_the_sessions_slot_is_over() -> None:
    arm = after(*(turn(y, "s", at, line="misses") for y, at in [(0.9, 0.0), (0.5, SLOT_S / 2)]))
    start = arm.test("misses").log_e
    arm.pass_time(SLOT_S - 1e-3)
    assert arm.test("misses").log_e == start, "it may still speak"
    arm.pass_time(SLOT_S)
    told = arm.test("misses").log_e
    assert told > start
    single = after(turn(0.7, None, line="misses"))
    assert told == pytest.approx(single.test("misses").log_e)
    arm.take(turn(1.0, "s", SLOT_S + 1.0, line="misses"))
    arm.pass_time(UNIT_S - 1.0)
    assert arm.test("misses").log_e == told, "it has had its word"


def test_a_session_that_speaks_for_longer_than_a_unit_may_speak_anew() -> None:
    arm = after(turn(1.0, "s"))
    assert not arm.take(turn(1.0, "s", UNIT_S - 1.0))
    assert arm.take(turn(1.0, "s", UNIT_S + 1.0))


def test_where_all_that_are_remembered_are_speaking_no_new_one_is_heard() -> None:
    arm = Arm(LINES)
    told = [arm.take(turn(1.0, f"s{i}")) for i in range(MOST_SESSIONS + 5)]
    assert told.count(True) == MOST_SESSIONS
    assert not any(told[MOST_SESSIONS:])
    e = arm.test("faults").log_e
    assert not arm.take(turn(1.0, "s0")), "it is not forgotten that it had a bad turn"
    assert arm.test("faults").log_e == e
    assert arm.test("faults").observations == MOST_SESSIONS + 6, "people see all of them"
    assert arm.take(turn(1.0, "another", SLOT_S)), "there is room once slots are over"


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_a_clock_that_jumps_ends_slots_and_silences_nobody(jump: float) -> None:
    arm = after(*(turn(0.5, f"s{i}", 1e7, line="misses") for i in range(MOST_SESSIONS)))
    assert arm.take(turn(1.0, "new", 1e7 + jump))
    assert arm.test("misses").verdict is Verdict.BREACH


def test_who_has_had_its_slot_makes_room_the_oldest_first() -> None:
    arm = after(*(turn(1.0, f"s{i}", i / 1e3) for i in range(MOST_SESSIONS)))
    assert arm.take(turn(1.0, "new", SLOT_S + 10.0))
    assert not arm.take(turn(1.0, "s1", SLOT_S + 11.0))
    assert arm.take(turn(1.0, "s0", SLOT_S + 12.0)), "forgotten, it is another"
    assert len(arm.save().sessions) < 100_000


# ------------------------------------------------------------ evidence of health
def test_a_session_of_many_clean_turns_is_one_proof_of_health() -> None:
    many = after(*(turn(0.0, "s", i / 10) for i in range(300)))
    one = after(turn(0.0, None))
    assert many.test("faults").numbers().pass_e == one.test("faults").numbers().pass_e


def test_a_sessions_mean_is_what_it_shows_at_every_moment() -> None:
    arm = after(turn(0.0, "s"), turn(0.0, "s", 1.0), turn(1.0, "s", 2.0), turn(0.0, "s", 3.0))
    single = after(turn(0.25, None))
    shown = arm.test("faults").numbers().pass_e
    assert shown == pytest.approx(single.test("faults").numbers().pass_e)


def test_after_its_slot_a_session_can_only_lose_health() -> None:
    arm = after(turn(0.0, "s"))
    arm.pass_time(SLOT_S)
    shown = arm.test("faults").numbers().pass_e
    arm.take(turn(0.0, "s", SLOT_S + 1.0))
    assert arm.test("faults").numbers().pass_e == shown
    arm.take(turn(1.0, "s", SLOT_S + 2.0))
    assert arm.test("faults").numbers().pass_e < shown


def test_health_that_was_forgotten_is_shown_anew_by_who_speaks_on() -> None:
    arm = after(turn(1.0, "s"))
    arm.forget_health()
    assert arm.test("faults").numbers().pass_e == pytest.approx(1.0)
    arm.take(turn(0.0, "s", 1.0))
    assert (
        arm.test("faults").numbers().pass_e
        == after(turn(0.0, None)).test("faults").numbers().pass_e
    )


# ------------------------------------------------------------ metamorphic
turns = st.lists(
    st.builds(
        turn,
        y=st.sampled_from([0.0, 0.0, 0.0, 0.2, 1.0]),
        session=st.sampled_from(["s0", "s1", "s2", "s3", None]),
        at=st.integers(0, 400).map(float),
        line=st.sampled_from(["faults", "loose", "misses"]),
    ).map(
        lambda each: msgspec.structs.replace(
            each, y=round(each.y) if each.line != "misses" else each.y
        )
    ),
    max_size=40,
).map(lambda some: sorted(some, key=lambda each: each.at))


@settings(max_examples=60, deadline=None)
@given(turns=turns, cut=st.integers(0, 40), rests=st.sets(st.integers(0, 40), max_size=3))
def test_an_arm_saved_to_bytes_between_any_two_turns_goes_on_the_same_to_the_bit(
    turns: list[Turn], cut: int, rests: set[int]
) -> None:
    whole, second = Arm(LINES), Arm(LINES)
    for i, each in enumerate(turns):
        if i == cut:
            saved = msgspec.json.decode(msgspec.json.encode(second.save()), type=ArmState)
            second = Arm.restore(LINES, saved)
        for arm in (whole, second):
            arm.take(each)
            if i in rests:
                arm.restart()
    assert second.save() == whole.save()
    assert second.numbers() == whole.numbers()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), bad=st.sets(st.integers(0, 29), max_size=6))
def test_the_order_of_sessions_within_a_moment_changes_no_e(seed: int, bad: set[int]) -> None:
    """Three turns each of ten sessions; each keeps its own order."""
    sessions = [[turn(float(3 * s + k in bad), f"s{s}") for k in range(3)] for s in range(10)]
    straight = [each for session in sessions for each in session]
    order = [s for s in range(10) for _ in range(3)]
    random.Random(seed).shuffle(order)
    queues = [iter(session) for session in sessions]
    one, other = after(*straight), after(*(next(queues[s]) for s in order))
    for arm in (one, other):
        arm.pass_time(UNIT_S)
    for line in LINES:
        a, b = one.test(line.name), other.test(line.name)
        assert a.log_e == pytest.approx(b.log_e, abs=1e-9)
        assert a.log_e_sessions == pytest.approx(b.log_e_sessions, abs=1e-9)
        assert a.numbers().pass_e == pytest.approx(b.numbers().pass_e)


def test_sessions_that_cannot_be_read_are_refused() -> None:
    state = msgspec.structs.replace(Arm(LINES).save(), sessions=b"nothing of the kind")
    with pytest.raises(ValueError, match="cannot be read"):
        Arm.restore(LINES, state)


def test_state_of_other_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="not the plan's"):
        Arm.restore((FAULTS,), Arm(LINES).save())
