"""`/control` and `/evidence`: the control plane's side of the data plane, over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from monitors.contract import (
    DrainOrder,
    DrillOrder,
    FlushOrder,
    LadderOrder,
    ProbeOrder,
    Refusal,
    Route,
    Wire,
)
from monitors.preparing import LoadOrder, RehearsalOrder
from runtime.guard import Guard
from runtime.loads import ModelRefused
from runtime.openai_errors import ApiError
from runtime.orders import DrillsOff, Orders
from runtime.plane import DataPlane
from runtime.residents.port import ResidentError
from runtime.router import OrderRefused, UnknownResident
from runtime.uploads import read_body

ORDER_BYTES = 64 * 1024  # a route with its longest lists of clients has 40 kB
MAX_WAIT_S = 30.0
BATCH = 1_000

Order = TypeVar("Order", bound=Wire)

_STATUS: dict[type[Exception], int] = {
    OrderRefused: 409,
    UnknownResident: 404,
    msgspec.ValidationError: 422,
    msgspec.DecodeError: 422,
    ModelRefused: 422,
    DrillsOff: 403,
    ResidentError: 503,
    OSError: 507,
}


class Control:
    """The routes. Every refusal is a `Refusal` with the epochs held."""

    def __init__(self, plane: DataPlane, orders: Orders, guard: Guard) -> None:
        self._plane = plane
        self._orders = orders
        self._guard = guard

    def router(self) -> APIRouter:
        """The routes, to be included in an app."""
        routes = APIRouter()
        resident = "/control/residents/{name}"
        for method, path, handler in (
            ("GET", "/control", self._observe),
            ("PUT", "/control/route", self._route),
            ("PUT", "/control/levels/{name}", self._level),
            ("POST", f"{resident}/drain", self._drain),
            ("POST", f"{resident}/flush", self._flush),
            ("POST", f"{resident}/probe", self._probe),
            ("POST", f"{resident}/drill", self._drill),
            ("POST", f"{resident}/rehearse", self._rehearse),
            ("POST", f"{resident}/load", self._load),
            ("GET", "/evidence", self._evidence),
        ):
            routes.add_api_route(
                path, self._guarded(handler), methods=[method], response_model=None
            )
        return routes

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Wire]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                self._guard.require_operator(request)
                return _json(await handler(request))
            except ApiError as err:
                return self._refusal(err.status, err.message)
            except tuple(_STATUS) as err:
                status = next(s for kind, s in _STATUS.items() if isinstance(err, kind))
                return self._refusal(status, str(err))

        return answer

    def _refusal(self, status: int, why: str) -> Response:
        fence = self._plane.router.fence
        refusal = Refusal(
            error=why, leader_epoch=fence.leader_epoch, route_epoch=fence.route.route_epoch
        )
        return _json(refusal, status)

    async def _observe(self, request: Request) -> Wire:
        return self._plane.observed()

    async def _route(self, request: Request) -> Wire:
        await self._orders.route(await _order(request, Route))
        return self._plane.observed()

    async def _level(self, request: Request) -> Wire:
        order = await _order(request, LadderOrder)
        name = request.path_params["name"]
        if name != order.resident:
            raise msgspec.ValidationError(f"the order is for {order.resident!r}, not {name!r}")
        await self._orders.level(order)
        return self._plane.observed()

    async def _drain(self, request: Request) -> Wire:
        return await self._orders.drain(
            request.path_params["name"], await _order(request, DrainOrder)
        )

    async def _flush(self, request: Request) -> Wire:
        return await self._orders.flush(
            request.path_params["name"], await _order(request, FlushOrder)
        )

    async def _probe(self, request: Request) -> Wire:
        return await self._orders.probe(
            request.path_params["name"], await _order(request, ProbeOrder)
        )

    async def _drill(self, request: Request) -> Wire:
        return await self._orders.drill(
            request.path_params["name"], await _order(request, DrillOrder)
        )

    async def _rehearse(self, request: Request) -> Wire:
        return await self._orders.rehearse(
            request.path_params["name"], await _order(request, RehearsalOrder)
        )

    async def _load(self, request: Request) -> Wire:
        await self._orders.load(request.path_params["name"], await _order(request, LoadOrder))
        return self._plane.observed()

    async def _evidence(self, request: Request) -> Wire:
        """Long poll: `incarnation`, `after` (a sequence), `wait` (seconds, at most 30)."""
        asked = _Poll.of(request)
        log = self._plane.book.evidence
        reading = asyncio.ensure_future(
            log.after(asked.incarnation, asked.after, min(asked.wait, MAX_WAIT_S), BATCH)
        )
        stopping = asyncio.ensure_future(self._plane.stopping.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            return await log.after(asked.incarnation, asked.after, 0.0, BATCH)
        except ValueError as err:
            raise msgspec.ValidationError(str(err)) from err
        finally:
            reading.cancel()
            stopping.cancel()


class _Poll(Wire, frozen=True):
    incarnation: str = ""
    after: int = 0
    wait: float = 0.0

    @classmethod
    def of(cls, request: Request) -> "_Poll":
        """Raises `msgspec.ValidationError` for parameters that are not these, or not numbers."""
        return msgspec.convert(dict(request.query_params), type=cls, strict=False)


async def _order(request: Request, kind: type[Order]) -> Order:
    return msgspec.json.decode(await read_body(request, ORDER_BYTES), type=kind)


def _json(message: Wire, status: int = 200) -> Response:
    return Response(msgspec.json.encode(message), status, media_type="application/json")
