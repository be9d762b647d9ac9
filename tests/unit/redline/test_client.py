"""The command line's HTTP: typed answers, and a sentence for everything else."""

import socket
import time

import pytest

from monitors.contract import DrillKind, DrillReport
from redline import inject
from redline.client import ClientError, ask
from redline.settings import Stack
from tests.support.http_server import Answer, recording_server

ORDER = b'{"resident":"a","kind":"slow","running":true,"detail":"0.3 s a step"}'


def stack(url: str) -> Stack:
    return Stack(runtime_url=url, control_url=url, token="secret")


def test_an_injection_is_ordered_with_its_default_amount_and_the_token() -> None:
    with recording_server() as server:
        server.answers["/control/residents/a/drill"] = Answer(ORDER)
        report = inject.start(stack(server.url), DrillKind.SLOW, "a", 60.0, None)
        (seen,) = server.seen
    assert report == DrillReport(
        resident="a", kind=DrillKind.SLOW, running=True, detail="0.3 s a step"
    )
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.body == b'{"kind":"slow","amount":0.3,"seconds":60.0}'


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(b'{"error":"drills are off"}', 403), r"refused \(403\): drills are off"),
        (Answer(b'{"error":{"message":"too long"}}', 413), r"refused \(413\): too long"),
        (Answer(b"Internal Server Error", 500, "text/plain"), "Internal Server Error"),
        (Answer(b"<html>", 200, "text/html"), "no Redline of this version"),
        (Answer(b'{"resident":"a"}'), "no Redline of this version"),
    ],
)
def test_what_is_no_answer_is_a_sentence(answer: Answer, says: str) -> None:
    with recording_server() as server:
        server.answers["/x"] = answer
        with pytest.raises(ClientError, match=says):
            ask(stack(server.url), "GET", f"{server.url}/x", DrillReport)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "nowhere", "http://[::", "http://"])
def test_nobody_there_is_a_sentence(url: str) -> None:
    with pytest.raises(ClientError, match="is the stack up"):
        ask(stack("http://127.0.0.1:1"), "GET", url, DrillReport)


def test_an_answer_that_takes_too_long_may_still_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        began = time.monotonic()
        with pytest.raises(ClientError, match="may still be at it"):
            ask(stack(url), "GET", url, DrillReport, timeout_s=0.1)
        assert time.monotonic() - began < 20


def test_a_proxy_of_the_environment_is_not_shown_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recording_server() as server, recording_server() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        server.answers["/x"] = Answer(ORDER)
        ask(stack(server.url), "GET", f"{server.url}/x", DrillReport)
        assert len(server.seen) == 1
        assert proxy.seen == []
