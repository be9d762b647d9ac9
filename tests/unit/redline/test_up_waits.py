"""`redline up` waiting for its planes: it ends at once where waiting cannot help."""

import threading
from collections.abc import Iterator

import msgspec
import pytest

from monitors.labels import ResidentState
from redline import up
from redline.settings import Stack
from runtime.readiness import Readiness, ResidentReadiness
from tests.support.http_server import Answer, Server, recording_server

SENTENCE = "resident 'a' cannot serve: /models/omni: the weights are damaged"


@pytest.fixture
def server() -> Iterator[Server]:
    """Both planes at once: the path is the same, so is the answer."""
    with recording_server() as running:
        yield running


def a_resident(
    name: str, state: ResidentState, *, restarts: int = 0, refused: bool = False, detail: str = ""
) -> ResidentReadiness:
    return ResidentReadiness(
        name=name, state=state, refused=refused, restarts=restarts, detail=detail
    )


B_SERVES = a_resident("b", ResidentState.READY)
A_LOADS = a_resident("a", ResidentState.LOADING)


def answers(server: Server, status: str, *residents: ResidentReadiness, detail: str = "") -> None:
    body = Readiness(status=status, detail=detail, residents=residents)
    code = 200 if body.ready else 503
    server.answers["/readyz"] = Answer(msgspec.json.encode(body), code)


def wait(server: Server, timeout_s: float = 20.0, stop: threading.Event | None = None) -> list[str]:
    said: list[str] = []
    stack = Stack(runtime_url=server.url, control_url=server.url, token="t")
    up.wait_ready(stack, [], said.append, stop or threading.Event(), timeout_s)
    return said


@pytest.mark.parametrize("status", ["ready", "b is loading"])
def test_a_checkpoint_that_cannot_be_served_ends_it_with_the_sentence(
    server: Server, status: str
) -> None:
    refused = a_resident("a", ResidentState.DEAD, refused=True, detail=SENTENCE)
    answers(server, status, B_SERVES, refused)
    with pytest.raises(up.UpError) as error:
        wait(server)
    assert str(error.value) == SENTENCE


def test_it_is_ready_once_both_planes_are_and_no_resident_loads_for_the_first_time(
    server: Server,
) -> None:
    answers(server, "ready", B_SERVES, A_LOADS)
    stop = threading.Event()
    threading.Timer(0.7, stop.set).start()
    assert wait(server, stop=stop) == ["control plane is ready"]
    answers(server, "ready", B_SERVES, a_resident("a", ResidentState.READY))
    assert wait(server) == ["data plane is ready", "control plane is ready"]


def test_a_canary_that_crashed_and_is_tried_again_holds_nothing_up(server: Server) -> None:
    for state in (ResidentState.DEAD, ResidentState.LOADING):
        answers(server, "ready", B_SERVES, a_resident("a", state, restarts=1, detail="code 1"))
        assert len(wait(server)) == 2


def test_time_does_not_run_out_while_weights_load(server: Server) -> None:
    answers(server, "b is loading", a_resident("b", ResidentState.LOADING), A_LOADS)
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    assert wait(server, timeout_s=0.1, stop=stop) == []


def test_out_of_time_it_says_what_the_data_plane_says(server: Server) -> None:
    crashed = a_resident("b", ResidentState.DEAD, restarts=3, detail="code -9")
    answers(server, "b is dead", crashed, detail="code -9")
    with pytest.raises(up.UpError, match=r"not ready after 0 s; b is dead: code -9; see the logs"):
        wait(server, timeout_s=0.1)


def test_out_of_time_it_says_that_nothing_answers(server: Server) -> None:
    server.answers["/readyz"] = Answer(b"<html>", 502)
    with pytest.raises(up.UpError, match=r"data plane and control plane not .*does not answer"):
        wait(server, timeout_s=0.1)
