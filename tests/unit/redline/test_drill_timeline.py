"""The verdict on a drill: every step, in its order, within its bound."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from monitors.redlines import RedLines
from redline.drills.bounds import MARGIN_S, Bounds
from redline.drills.engine import ACTION, EFFECT, FIRING
from redline.drills.names import DrillName
from redline.drills.report import draw, report
from redline.drills.timeline import BEGIN, BREACH, CLOCKS_S, Mark, Step, Timeline, wanting

STEPS = (
    Step(BREACH, "the line is crossed", 30.0),
    Step(FIRING, "the alert fires", 10.0, BREACH),
    Step(ACTION, "the ladder moves", 5.0, FIRING),
    Step(EFFECT, "the level is held", 5.0, ACTION),
)


def timeline(*at: float | None, steps: tuple[Step, ...] = STEPS) -> Timeline:
    """The steps at these seconds after the injection; None: not seen."""
    marks = {
        step.key: Mark(1000.0 + second, "seen", "test")
        for step, second in zip(steps, at, strict=True)
        if second is not None
    }
    return Timeline(began=Mark(1000.0, "broken", "test"), steps=steps, marks=marks)


def test_all_in_order_and_in_time_is_an_answer() -> None:
    assert wanting(timeline(2.0, 3.0, 4.0, 4.5)) == ()


def test_the_first_step_that_is_missing_is_named_alone() -> None:
    (told,) = wanting(timeline(2.0, 3.0, None, None))
    assert told == "action: not seen within 5.0 s of firing: the ladder moves"


def test_nothing_at_all_names_the_breach() -> None:
    (told,) = wanting(timeline(None, None, None, None))
    assert told.startswith("breach: not seen within 30.0 s of the injection")


def test_a_late_step_is_no_answer_though_it_came() -> None:
    (told,) = wanting(timeline(2.0, 12.5, 13.0, 13.5))
    assert told == "firing: 10.5 s after breach, where 10.0 s are allowed: the alert fires"


def test_an_answer_before_its_cause_is_none() -> None:
    (told,) = wanting(timeline(8.0, 3.0, 4.0, 4.5))
    assert told.startswith("firing: 5.0 s before breach")


def test_clocks_and_looks_may_differ_a_little() -> None:
    assert wanting(timeline(3.0, 3.0 - 0.9 * CLOCKS_S, 3.0, 3.0)) == ()
    assert len(wanting(timeline(3.0, 3.0 - 1.1 * CLOCKS_S, 3.0, 3.0))) == 1


def test_what_must_never_happen_fails_a_drill_that_is_complete() -> None:
    broken = replace(timeline(1.0, 2.0, 3.0, 4.0), broken=("the level was forgotten",))
    assert wanting(broken) == ("the level was forgotten",)


def test_what_the_drill_does_itself_is_nobodys_to_answer_for() -> None:
    steps = (*STEPS[:1], Step("down", "killed", None), Step("led", "leads again", 5.0, "down"))
    assert wanting(timeline(1.0, 500.0, 504.0, steps=steps)) == ()
    assert len(wanting(timeline(1.0, 500.0, 506.0, steps=steps))) == 1


times = st.none() | st.floats(-100.0, 100.0)


@given(times, times, times, times)
def test_an_answer_has_every_step_within_its_bound_and_no_other_has(
    breach: float | None, firing: float | None, action: float | None, effect: float | None
) -> None:
    """The verdict against the same rule written the other way round."""
    came = (breach, firing, action, effect)
    before = (0.0, *came[:-1])
    good = all(
        now is not None and then is not None and -CLOCKS_S <= now - then <= step.within_s
        for step, now, then in zip(STEPS, came, before, strict=True)
        if step.within_s is not None
    )
    near = any(
        now is not None
        and then is not None
        and min(abs(now - then + CLOCKS_S), abs(now - then - (step.within_s or 0.0))) < 1e-6
        for step, now, then in zip(STEPS, came, before, strict=True)
    )  # 1000 s are added to both: at the very limit rounding decides
    assert near or (wanting(timeline(*came)) == ()) == good


def test_a_step_is_overdue_only_once_its_cause_was_seen() -> None:
    seen = timeline(2.0, None, None, None)
    assert not seen.overdue(STEPS[1], now=1011.9)
    assert seen.overdue(STEPS[1], now=1012.1)
    assert not seen.overdue(STEPS[2], now=9999.0), "firing never came: nobody waits for more"
    assert not seen.overdue(STEPS[0], now=9999.0), "it came"


def test_bounds_follow_the_red_lines() -> None:
    lines = RedLines()
    slower = lines.model_copy(
        update={"latency": lines.latency.model_copy(update={"window_s": 130.0})}
    )
    assert Bounds(slower).breach_s() == Bounds(lines).breach_s() + 100.0
    assert Bounds(lines).firing_s(30.0) == Bounds(lines).firing_s(0.0) + 30.0
    assert Bounds(lines).eased_s(240.0) > 240.0 + MARGIN_S


def test_the_report_counts_from_the_breach_and_from_the_cause() -> None:
    told = report(DrillName.LATENCY, timeline(2.0, 3.0, None, None), ("frozen",), 7, 1)
    assert not told.answered
    assert told.runbook == "docs/runbooks/redline-latency-degrade.md"
    began, breach, firing, action, _ = told.steps
    assert (began.step, began.after_breach_s, began.took_s) == (BEGIN, -2.0, None)
    assert (breach.after_breach_s, breach.took_s) == (0.0, 2.0)
    assert (firing.after_breach_s, firing.took_s) == (1.0, 1.0)
    assert (action.wall, action.took_s, action.seen) == (None, None, None)


def test_without_a_breach_nothing_is_counted_from_one() -> None:
    told = report(DrillName.CACHE, timeline(None, None, None, None), (), 0, 0)
    assert {one.after_breach_s for one in told.steps} == {None}


def drawn(timeline: Timeline, instead: tuple[str, ...]) -> str:
    console = Console(width=80, file=StringIO())
    console.print(draw(report(DrillName.LATENCY, timeline, instead, 7, 1)))
    return console.file.getvalue()


def test_a_timeline_is_whole_at_80_columns_and_says_what_is_missing() -> None:
    told = drawn(timeline(2.0, 3.0, None, None), ("the ladder is frozen",))
    assert all(len(line) <= 80 for line in told.splitlines())
    assert "…" not in told
    assert "not seen" in told
    assert "did not answer as docs/runbooks/redline-latency-degrade.md says" in told
    places = ["action: not seen within 5.0 s of firing", "Seen instead:", "the ladder is frozen"]
    assert [told.index(place) for place in places] == sorted(map(told.index, places))
    assert "Seen instead" not in drawn(timeline(2.0, 3.0, None, None), ())


def test_an_answer_is_said_in_a_sentence_alone() -> None:
    told = drawn(timeline(2.0, 3.0, 4.0, 4.5), ())
    assert "The system answered as docs/runbooks/redline-latency-degrade.md says." in told
    assert "instead" not in told


@pytest.mark.parametrize("name", DrillName)
def test_every_drill_is_judged_by_a_page_that_is_there(name: DrillName) -> None:
    page = Path(__file__).parents[3] / name.runbook
    assert f"redline drill {name}" in page.read_text()
