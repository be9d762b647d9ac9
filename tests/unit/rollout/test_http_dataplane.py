"""The HTTP client of the data plane: what it sends, and what it makes of each kind of answer."""

from collections.abc import AsyncIterator, Callable

import httpx
import msgspec
import pytest

from monitors.contract import (
    ALL_CLASSES,
    DrainMode,
    DrainOrder,
    DrainReport,
    EvidenceBatch,
    FlushOrder,
    LadderOrder,
    Level,
    Observed,
    ProbeOrder,
    Refusal,
    Route,
    Wire,
)
from monitors.evidence import Cursor
from rollout.dataplane import (
    Conflict,
    HttpDataPlane,
    Invalid,
    Refused,
    UnknownResident,
    Unreachable,
)

OBSERVED = Observed(
    incarnation="g1", leader_epoch=4, route_epoch=7, stable="b", canary="a", canary_weight=5,
    lease_left_s=9.0, residents=(),
)  # fmt: skip
ROUTE = Route(leader_epoch=4, route_epoch=7, stable="b", canary="a", canary_weight=5)
Answer = Callable[[httpx.Request], httpx.Response]


class Server:
    """Answers each request by `answer` and keeps it."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.answer: Answer = lambda _: ok(OBSERVED)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)


def ok(body: Wire) -> httpx.Response:
    return httpx.Response(200, content=msgspec.json.encode(body))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def plane(server: Server) -> AsyncIterator[HttpDataPlane]:
    transport = httpx.MockTransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://plane") as client:
        yield HttpDataPlane(client, token="secret")


async def test_an_order_is_sent_as_json_with_the_token_and_answered_typed(
    server: Server, plane: HttpDataPlane
) -> None:
    assert await plane.set_route(ROUTE) == OBSERVED
    (request,) = server.requests
    assert (request.method, request.url.path) == ("PUT", "/control/route")
    assert request.headers["Authorization"] == "Bearer secret"
    assert msgspec.json.decode(request.content, type=Route) == ROUTE


async def test_without_a_token_none_is_sent(server: Server) -> None:
    transport = httpx.MockTransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://plane") as client:
        assert await HttpDataPlane(client).observe() == OBSERVED
    assert "Authorization" not in server.requests[0].headers


async def test_every_order_goes_to_its_own_route(server: Server, plane: HttpDataPlane) -> None:
    ladder = LadderOrder(
        leader_epoch=1, operation_id="o", resident="a", level=Level(), lease_s=1.0, actor="x",
        reason="y", classes=ALL_CLASSES,
    )  # fmt: skip
    await plane.set_level(ladder)
    server.answer = lambda _: httpx.Response(404, content=msgspec.json.encode(Refusal(error="no")))
    drain = DrainOrder(leader_epoch=1, mode=DrainMode.FINISH, timeout_s=1.0)
    for call in (
        plane.drain("a", drain),
        plane.flush("a", FlushOrder(leader_epoch=1, min_pool_epoch=2)),
        plane.probe("a", ProbeOrder(leader_epoch=1, pool_epoch=2)),
    ):
        with pytest.raises(UnknownResident):
            await call
    assert [(r.method, r.url.path) for r in server.requests] == [
        ("PUT", "/control/levels/a"),
        ("POST", "/control/residents/a/drain"),
        ("POST", "/control/residents/a/flush"),
        ("POST", "/control/residents/a/probe"),
    ]


async def test_a_poll_tells_its_cursor_and_waits_longer_than_the_server(
    server: Server, plane: HttpDataPlane
) -> None:
    batch = EvidenceBatch(incarnation="g 1&x", oldest_seq=1, next_seq=5, entries=())
    server.answer = lambda _: ok(batch)
    assert await plane.evidence(Cursor(incarnation="g 1&x", seq=4), 20.0) == batch
    (request,) = server.requests
    assert dict(request.url.params) == {"incarnation": "g 1&x", "after": "4", "wait": "20.0"}
    assert request.extensions["timeout"]["read"] > 20.0


async def test_a_drain_is_given_the_time_it_may_take(server: Server, plane: HttpDataPlane) -> None:
    report = DrainReport(resident="a", remaining=0, finished=1, aborted=0, replayed=0)
    server.answer = lambda _: ok(report)
    order = DrainOrder(leader_epoch=1, mode=DrainMode.FINISH, timeout_s=120.0)
    assert await plane.drain("a", order) == report
    assert server.requests[0].extensions["timeout"]["read"] > 120.0


@pytest.mark.parametrize(
    ("status", "kind"), [(409, Conflict), (422, Invalid), (404, UnknownResident), (403, Refused)]
)
async def test_a_refusal_is_an_error_that_keeps_the_epochs_held(
    server: Server, plane: HttpDataPlane, status: int, kind: type[Refused]
) -> None:
    refusal = Refusal(error="route epoch 6 does not grow", leader_epoch=4, route_epoch=7)
    server.answer = lambda _: httpx.Response(status, content=msgspec.json.encode(refusal))
    with pytest.raises(kind, match="does not grow") as caught:
        await plane.set_route(ROUTE)
    assert (caught.value.status, caught.value.leader_epoch, caught.value.route_epoch) == (
        status, 4, 7,
    )  # fmt: skip


async def test_an_engine_that_fails_an_order_is_a_refusal_with_its_words(
    server: Server, plane: HttpDataPlane
) -> None:
    refusal = Refusal(error="resident 'a' is dead")
    server.answer = lambda _: httpx.Response(503, content=msgspec.json.encode(refusal))
    with pytest.raises(Refused, match="is dead"):
        await plane.flush("a", FlushOrder(leader_epoch=1, min_pool_epoch=2))


def _raise(error: Exception) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        _raise(httpx.ConnectError("connection refused")),
        _raise(httpx.ReadTimeout("")),
        lambda _: httpx.Response(502, text="<html>bad gateway</html>"),
        lambda _: httpx.Response(200, text="<html>hello</html>"),
        lambda _: httpx.Response(200, content=b'{"incarnation": "g1", "surprise": 1}'),
    ],
)
async def test_whatever_is_no_answer_leaves_the_order_unacknowledged(
    server: Server, plane: HttpDataPlane, answer: Answer
) -> None:
    server.answer = answer
    with pytest.raises(Unreachable, match="PUT /control/route"):
        await plane.set_route(ROUTE)


async def test_a_page_that_refuses_is_quoted(server: Server, plane: HttpDataPlane) -> None:
    server.answer = lambda _: httpx.Response(401, text="who are you?")
    with pytest.raises(Refused, match=r"401.*who are you\?"):
        await plane.observe()
