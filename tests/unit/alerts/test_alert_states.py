"""Prometheus' state machine of an alert, one transition at a time and over random series."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.evaluator import Standing, advance

WALL = 1_800_000_000.0


def run(crossed: list[bool], for_s: float, keep_firing_s: float = 0.0) -> list[Standing | None]:
    """The standings after each second."""
    standing, seen = None, list[Standing | None]()
    for now, each in enumerate(crossed):
        standing = advance(
            standing, each, for_s=for_s, keep_firing_s=keep_firing_s, now=now, wall=WALL + now
        )
        seen.append(standing)
    return seen


def fires(standings: list[Standing | None]) -> list[bool]:
    return [standing is not None and standing.fires for standing in standings]


def test_a_crossing_fires_when_it_has_lasted_and_not_a_second_before():
    seen = run([True] * 31, for_s=30.0)
    pending = Standing(active_at=0.0, pending_at=WALL)
    assert seen[:30] == [pending] * 30
    assert seen[30] == replace(pending, fired_at=WALL + 30)


def test_without_a_for_it_fires_at_once():
    assert run([True], for_s=0.0)[0] == Standing(0.0, WALL, fired_at=WALL)


def test_a_pending_one_that_is_missed_once_starts_again_whatever_keeps_firing():
    seen = run([True] * 29 + [False] + [True] * 30, for_s=30.0, keep_firing_s=60.0)
    assert seen[29] is None
    assert seen[30] == Standing(30.0, WALL + 30)
    assert not any(fires(seen))


def test_a_firing_one_is_kept_from_the_first_look_that_missed_it():
    seen = run([True, False, False, False, False], for_s=0.0, keep_firing_s=3.0)
    assert fires(seen) == [True, True, True, True, False]


def test_crossed_again_while_it_is_kept_it_goes_on_as_the_same_firing():
    seen = run([True, False, False, True, False, False, False], for_s=0.0, keep_firing_s=3.0)
    assert fires(seen) == [True] * 7
    assert {standing.fired_at for standing in seen if standing} == {WALL}
    assert seen[3] == seen[0]


def test_one_that_ended_fires_again_under_a_new_start():
    seen = run([True, False, True], for_s=0.0)
    assert [standing and standing.fired_at for standing in seen] == [WALL, None, WALL + 2]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(0, 8), st.integers(0, 8))
def test_it_fires_exactly_where_a_plain_reading_of_the_words_says(
    crossed: list[bool], for_s: int, keep_s: int
):
    """Fires at t: some look not later was crossed for so long, and none since missed for long."""

    def lasted(at: int) -> bool:
        last = crossed[max(0, at - for_s) : at + 1]
        return len(last) == for_s + 1 and all(last)

    expected = [False] * len(crossed)
    for begin in range(len(crossed)):
        if lasted(begin):
            missed = 0
            for at in range(begin, len(crossed)):
                missed = 0 if crossed[at] else missed + 1
                if missed > keep_s:
                    break
                expected[at] = True
    assert fires(run(crossed, float(for_s), float(keep_s))) == expected
