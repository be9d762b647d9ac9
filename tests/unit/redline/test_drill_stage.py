"""A drill's stage: it looks until a step comes or is overdue, and mends what it broke."""

import fcntl
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from alerts.policy import make
from monitors.contract import DrillKind
from monitors.labels import Phase
from monitors.redlines import RedLines
from redline.cli import app
from redline.drills import command, fault, machinery
from redline.drills.lock import Busy, only_drill_in, running_drill
from redline.drills.stage import CannotRun, Stage, Teller, Unanswered
from redline.drills.timeline import BREACH, Mark, Step, wanting
from redline.drills.traffic import Traffic
from redline.processes import ProcessMark, mark_of, send
from redline.settings import Stack
from tests.support.http_server import Answer, Server, recording_server
from tests.unit.redline.samples import rollout, status
from tests.unit.redline.test_drill_signs import NOTHING

DRILL = "/control/residents/b/drill"
TAKEN = Answer(b'{"resident":"b","kind":"slow","running":true,"detail":"running"}')


class Seer:
    """A watch that sees nothing, and counts how often it was asked."""

    def __init__(self) -> None:
        self.looks = 0

    def sight(self) -> Any:
        self.looks += 1
        return NOTHING


def stage_on(server: Server, said: list[str] | None = None) -> Stage:
    stack = Stack(runtime_url=server.url, control_url=server.url, token="secret")
    watch: Any = Seer()
    return Stage(
        stack=stack,
        policy=make(RedLines()),
        watch=watch,
        traffic=Traffic(stack, Path("none.mp4")),
        teller=Teller(
            tell=(said if said is not None else []).append,
            wait_for=lambda _: None,
            confirm=lambda _: False,
        ),
    )


def orders(server: Server) -> list[bytes]:
    return [seen.body for seen in server.seen if seen.path == DRILL]


@pytest.mark.parametrize("end", [KeyboardInterrupt, Unanswered(NOTHING), RuntimeError])
def test_an_injection_is_ended_whatever_happens(end: Any) -> None:
    with recording_server() as server:
        server.answers[DRILL] = TAKEN

        def broken() -> None:
            with stage_on(server).injected(DrillKind.SLOW, "b", 0.5):
                raise end

        with pytest.raises((KeyboardInterrupt, Unanswered, RuntimeError)):
            broken()
        begun, ended = orders(server)
    assert b'"amount":0.5,"seconds":600.0' in begun
    assert b'"seconds":0.0' in ended


def test_a_stack_that_allows_no_injection_cannot_be_drilled() -> None:
    with recording_server() as server:
        server.answers[DRILL] = Answer(b'{"error":"drills are off"}', 403)
        stage = stage_on(server)
        with (
            pytest.raises(CannotRun, match="drills are off"),
            stage.injected(DrillKind.SLOW, "b", 0.5),
        ):
            pytest.fail("it ran")
        assert len(orders(server)) == 1, "what never began need not be ended"


def test_an_injection_that_cannot_be_ended_is_said_to_end_by_itself() -> None:
    said = list[str]()
    with recording_server() as server:
        server.answers[DRILL] = TAKEN
        stage = stage_on(server, said)
        with stage.injected(DrillKind.SLOW, "b", 0.5):
            del server.answers[DRILL]
    assert "ends by itself within 600 s" in said[-1]
    assert said[-1] in stage.damage.told


def seen_after(looks: int) -> Callable[[Any], Mark | None]:
    counts = iter(range(looks))
    return lambda _: None if next(counts, None) is not None else Mark(time.time(), "seen", "test")


def test_a_step_is_looked_for_until_it_comes() -> None:
    with recording_server() as server:
        stage = stage_on(server)
        stage.begin("broken")
        after = Step("firing", "fires", 30.0, BREACH)
        stage.expect((Step(BREACH, "crossed", 30.0), seen_after(2)), (after, seen_after(0)))
    assert list(stage.timeline.marks) == [BREACH, "firing"]
    assert wanting(stage.timeline) == ()


def test_nothing_is_waited_for_once_a_step_is_overdue() -> None:
    with recording_server() as server:
        stage = stage_on(server)
        stage.begin("broken")
        never = (Step(BREACH, "crossed", 0.05), lambda _: None)
        with pytest.raises(Unanswered):
            stage.expect(never, (Step("firing", "fires", 3600.0, BREACH), seen_after(0)))
    (told,) = wanting(stage.timeline)
    assert told.startswith("breach: not seen within")


def test_what_must_not_happen_is_noted_once_and_only_while_it_is_guarded() -> None:
    with recording_server() as server:
        stage = stage_on(server)
        stage.begin("broken")
        with stage.guarded(lambda _: "the level was forgotten"):
            stage.pause(0.5, "looks")
        stage.pause(0.3, "looks")
    assert stage.timeline.broken == ("the level was forgotten",)


def test_a_process_that_is_not_recorded_is_not_ours_to_stop() -> None:
    with recording_server() as server, pytest.raises(CannotRun, match="needs the machine"):
        stage_on(server).process("Prometheus")


# ---------------------------------------------------------------- one at a time
def test_a_second_drill_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    assert running_drill(tmp_path) is None
    with only_drill_in(tmp_path / "state", "latency"):
        assert running_drill(tmp_path / "state") == "latency"
        with (
            pytest.raises(Busy, match="drill latency runs already"),
            only_drill_in(tmp_path / "state", "cache"),
        ):
            pytest.fail("two at once")
        assert running_drill(tmp_path / "state") == "latency"
    assert running_drill(tmp_path / "state") is None


def test_whoever_only_looks_keeps_no_drill_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "drill.lock").write_text("cache")  # it was killed, and left its name
    looks = (tmp_path / "drill.lock").open("r")
    fcntl.flock(looks, fcntl.LOCK_SH)
    threading.Timer(0.2, looks.close).start()
    with only_drill_in(tmp_path, "latency"):
        assert running_drill(tmp_path) == "latency"


def test_a_drill_that_ended_by_an_error_leaves_the_next_free(tmp_path: Path) -> None:
    def fails() -> None:
        with only_drill_in(tmp_path, "latency"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    with only_drill_in(tmp_path, "cache"):
        assert running_drill(tmp_path) == "cache"


STATUS, START, ROLLBACK = "/api/status", "/api/rollout/start", "/api/rollout/rollback"


@pytest.mark.parametrize(
    ("phase", "started", "orders"),
    [
        (Phase.STABLE, Answer(b"", 500), [START]),  # refused: nothing began
        (Phase.STABLE, Answer(b"no plan"), [START, ROLLBACK]),  # begun, for all we know
        (Phase.CANARY, Answer(b"no plan"), []),  # somebody else's
    ],
)
def test_a_rollout_of_the_drills_own_does_not_outlive_it(
    phase: Phase, started: Answer, orders: list[str]
) -> None:
    said: list[str] = []
    with recording_server() as server:
        server.answers[STATUS] = Answer(msgspec.json.encode(status(rollout=rollout(phase=phase))))
        server.answers[START] = started
        server.answers[ROLLBACK] = Answer(b'{"error":"nothing is on trial"}', 409)
        stage = stage_on(server, said)

        def interrupted() -> None:
            with stage.damage.mended_at_the_end():
                fault._on_trial(stage, unasked=True)
                raise KeyboardInterrupt

        with pytest.raises((KeyboardInterrupt, CannotRun)):
            interrupted()
        assert [seen.path for seen in server.seen if seen.path != STATUS] == orders
    assert ("is not rolled back" in " ".join(said)) is (ROLLBACK in orders)


def test_what_is_stopped_goes_on_though_the_drill_ends_with_the_very_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mark = mark_of(child.pid)
    assert mark is not None

    def stops(process: ProcessMark, number: signal.Signals) -> None:
        send(process, number)
        raise KeyboardInterrupt

    monkeypatch.setattr(machinery, "send", stops)
    try:
        with recording_server() as server:
            stage = stage_on(server)
            stage.stack = stage.stack.model_copy(update={"processes": {"Prometheus": mark}})
            with pytest.raises(KeyboardInterrupt), machinery.held_still(stage, "Prometheus"):
                pytest.fail("it went on")
        deadline = time.monotonic() + 20
        while psutil.Process(child.pid).status() == psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()


def test_no_stack_is_a_drill_that_cannot_run(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["drill", "latency", "--state-dir", str(tmp_path)])
    assert outcome.exit_code == command.CANNOT_RUN
