"""One drill from its first look to its verdict and its exit code."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from alerts.names import AlertName
from alerts.policy import make
from monitors.redlines import LatencyLines, RedLines
from redline.cli import app
from redline.client import ClientError
from redline.drills import command, control_down, engine, fault, machinery, run
from redline.drills.damage import Damage
from redline.drills.names import DrillName
from redline.drills.report import Report
from redline.drills.run import Wishes, hold_drill
from redline.drills.stage import CannotRun, Stage, Unanswered
from redline.drills.timeline import BREACH, Step
from redline.drills.traffic import Kind, Traffic
from redline.drills.watch import Sight
from redline.settings import Stack
from tests.unit.redline.drill_world import World, stage_in
from tests.unit.redline.test_drill_signs import NOTHING

WISHES = Wishes(recovery=True, own_traffic=True, yes=False, clean_up=True, hold_s=15.0)
STACK = Stack(runtime_url="http://r", control_url="http://c", token="t")
STEP = Step(BREACH, "crossed", 5.0)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """What every drill of the test plays on."""
    found = stage_in(World(), monkeypatch)

    @contextmanager
    def staged(*_: Any) -> Generator[Stage]:
        yield found

    monkeypatch.setattr(run, "_staged", staged)
    return found


def held(name: DrillName, stage: Stage) -> Report:
    return hold_drill(name, STACK, make(RedLines()), WISHES, stage.teller, Damage())


@pytest.mark.parametrize(
    ("name", "module", "plays", "with_"),
    [
        (DrillName.LATENCY, engine, "latency", ((), {})),
        (DrillName.CACHE, engine, "cache", ((), {})),
        (DrillName.FAULT, fault, "fault", ((), {"unasked": False, "clean_up": True})),
        (DrillName.PROMETHEUS_DOWN, machinery, "silent", (("Prometheus",), {})),
        (DrillName.ALERTMANAGER_DOWN, machinery, "silent", (("Alertmanager",), {})),
        (DrillName.CONTROL_DOWN, control_down, "control_down", ((15.0,), {})),
    ],
)
def test_each_name_plays_its_drill_as_it_was_asked_for(
    name: DrillName, module: Any, plays: str, with_: Any, stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    played = list[Any]()
    monkeypatch.setattr(module, plays, lambda _, *given, **named: played.append((given, named)))
    report = held(name, stage)
    assert played == [with_]
    assert (report.drill, report.answered, report.instead) == (name, True, ())


def overdue(stage: Stage) -> None:
    stage._add(STEP)
    raise Unanswered(NOTHING)


def hangs_up(stage: Stage) -> None:
    stage._add(STEP)
    raise ClientError("http://c does not answer")


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (overdue, "breach: not seen within 5.0 s"),
        (hangs_up, "the stack does not answer the drill: http://c does not answer"),
    ],
)
def test_a_drill_that_is_not_answered_says_how_things_stood(
    ends: Callable[[Stage], None], says: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "latency", ends)
    report = held(DrillName.LATENCY, stage)
    assert not report.answered
    assert any(sentence.startswith(says) for sentence in report.wanting)
    assert report.instead


@pytest.mark.parametrize("error", [ClientError("none"), CannotRun("not now")])
def test_one_that_cannot_begin_has_no_verdict(
    error: Exception, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Stage) -> None:
        raise error

    monkeypatch.setattr(engine, "latency", fails)
    with pytest.raises(type(error)):
        held(DrillName.LATENCY, stage)


# ---------------------------------------------------------------- the command
def drill(state: Path, stack: Stack = STACK) -> Any:
    stack.save(state)
    return CliRunner().invoke(app, ["drill", "latency", "--json", "--state-dir", str(state)])


@pytest.mark.parametrize(("ends", "code"), [(None, 0), (overdue, command.NOT_ANSWERED)])
def test_the_exit_code_is_the_verdict(
    ends: Callable[[Stage], None] | None,
    code: int,
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "latency", ends or (lambda _: None))
    outcome = drill(tmp_path)
    assert outcome.exit_code == code
    assert f'"answered":{"false" if code else "true"}' in outcome.stdout


def test_it_goes_by_the_lines_and_rules_that_the_stack_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Any]()

    def hold(*args: Any) -> None:
        given.append(args[2])
        raise CannotRun("seen enough")

    monkeypatch.setattr(run, "hold_drill", hold)
    lines = RedLines(latency=LatencyLines(degrade_s=0.7))
    rules = {AlertName.LATENCY_DEGRADE.value: {"for": "9s"}}
    cases: list[tuple[dict[str, Any], tuple[float, float]]] = [
        ({"lines": lines, "rules": rules}, (0.7, 9.0)),
        ({}, (0.4, 0.0)),
    ]
    for of, expected in cases:
        assert drill(tmp_path, STACK.model_copy(update=of)).exit_code == command.CANNOT_RUN
        rule = given[-1].rule(AlertName.LATENCY_DEGRADE)
        assert (given[-1].lines.latency.degrade_s, rule.for_s) == expected


@pytest.mark.parametrize(
    ("interrupted", "code", "says"),
    [
        (False, command.CANNOT_RUN, "nobody answers here: say --yes"),
        (True, command.INTERRUPTED, "interrupted; nothing was broken"),
    ],
)
def test_a_question_that_nobody_answers_and_one_that_is_cut_short_are_told_apart(
    interrupted: bool, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(*given: Any) -> None:
        given[-1].interrupted = interrupted
        raise typer.Abort

    monkeypatch.setattr(run, "hold_drill", asks)
    outcome = drill(tmp_path)
    assert outcome.exit_code == code
    assert says in outcome.stderr


# ---------------------------------------------------------------- of the stage
def test_what_must_be_so_first_is_waited_for_and_then_given_up(stage: Stage) -> None:
    def at(now: float) -> Callable[[Sight], Any]:
        return lambda sight: sight.wall >= now or None

    began = stage.watch.sight().wall
    stage.await_first(at(began + 3.0), 5.0, "waits")
    with pytest.raises(CannotRun, match="waits: not so after 5 s"):
        stage.await_first(at(began + 60.0), 5.0, "waits")


def test_each_own_request_counts_as_answered_or_with_why_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traffic = Traffic(STACK, Path("none.mp4"))
    ends = iter([None, ClientError("HTTP 503"), None])
    done = threading.Event()

    def ask(*_: Any) -> Any:
        end = next(ends, done)
        if end is done:
            done.set()
        if isinstance(end, ClientError):
            raise end

    monkeypatch.setattr(traffic, "_ask", ask)
    with traffic.going_on(Kind(workers=1, pause_s=0.01)):
        assert done.wait(30.0)
    assert [why for _, why in traffic.failures] == ["HTTP 503"]
    assert traffic.answered >= 3
    assert traffic.newest is not None
