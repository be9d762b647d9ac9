"""The data plane as the control plane sees it: typed orders over HTTP, and typed refusals.

A call returns what the data plane acknowledged or raises; there is no third outcome. An order
whose answer was lost may have been taken: repeat it, all of them may be.
"""

from http import HTTPStatus
from typing import Protocol, TypeVar

import httpx
import msgspec

from monitors.contract import (
    DrainOrder,
    DrainReport,
    DrillOrder,
    DrillReport,
    EvidenceBatch,
    FlushOrder,
    FlushReceipt,
    LadderOrder,
    Observed,
    ProbeOrder,
    ProbeReport,
    Refusal,
    Route,
    Wire,
)
from monitors.evidence import Cursor
from monitors.preparing import LoadOrder, RehearsalOrder, RehearsalReport

T = TypeVar("T")

_TIMEOUT_S = 2.0  # of a call that only sets or shows something
_MARGIN_S = 10.0  # on top of the time that a drain or a poll may take
_WORK_S = 60.0  # of a flush or a probe: the last resort is to restart the engine
_WORDS = 300  # of an answer that is no refusal, quoted in the error


class DataPlaneError(RuntimeError):
    """An order has no acknowledgement; the message says why."""


class Unreachable(DataPlaneError):
    """No answer, or none that can be read: whether an order was taken is unknown."""


class Refused(DataPlaneError):
    """The data plane answered no. The epochs it holds are given where it said them."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        super().__init__(f"refused ({status}): {refusal.error}")
        self.status = status
        self.why = refusal.error
        self.leader_epoch = refusal.leader_epoch
        self.route_epoch = refusal.route_epoch


class Conflict(Refused):
    """409: a stale leader or epoch, or a state that does not allow it now."""


class Invalid(Refused):
    """422: the order itself makes no sense to this data plane."""


class UnknownResident(Refused):
    """404: no resident of that name."""


_REFUSALS: dict[int, type[Refused]] = {
    HTTPStatus.NOT_FOUND: UnknownResident,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
}


class DataPlane(Protocol):
    """Every call raises `Refused` or `Unreachable`. All orders may be repeated."""

    async def observe(self) -> Observed: ...
    async def set_route(self, route: Route) -> Observed: ...
    async def set_level(self, order: LadderOrder) -> Observed: ...
    async def drain(self, resident: str, order: DrainOrder) -> DrainReport: ...
    async def flush(self, resident: str, order: FlushOrder) -> FlushReceipt: ...
    async def probe(self, resident: str, order: ProbeOrder) -> ProbeReport: ...
    async def drill(self, resident: str, order: DrillOrder) -> DrillReport: ...
    async def rehearse(self, resident: str, order: RehearsalOrder) -> RehearsalReport: ...
    async def load(self, resident: str, order: LoadOrder) -> Observed: ...
    async def evidence(self, cursor: Cursor, wait_s: float) -> EvidenceBatch: ...


class HttpDataPlane:
    """`DataPlane` over a client whose `base_url` is the data plane's; the caller closes it."""

    def __init__(self, client: httpx.AsyncClient, token: str | None = None) -> None:
        self._client = client
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    async def observe(self) -> Observed:
        return await self._call(Observed, "GET", "/control")

    async def set_route(self, route: Route) -> Observed:
        return await self._call(Observed, "PUT", "/control/route", route)

    async def set_level(self, order: LadderOrder) -> Observed:
        return await self._call(Observed, "PUT", f"/control/levels/{order.resident}", order)

    async def drain(self, resident: str, order: DrainOrder) -> DrainReport:
        timeout_s = order.timeout_s + _MARGIN_S
        return await self._post(DrainReport, resident, "drain", order, timeout_s)

    async def flush(self, resident: str, order: FlushOrder) -> FlushReceipt:
        return await self._post(FlushReceipt, resident, "flush", order, _WORK_S)

    async def probe(self, resident: str, order: ProbeOrder) -> ProbeReport:
        return await self._post(ProbeReport, resident, "probe", order, _WORK_S)

    async def drill(self, resident: str, order: DrillOrder) -> DrillReport:
        return await self._post(DrillReport, resident, "drill", order, _WORK_S)

    async def rehearse(self, resident: str, order: RehearsalOrder) -> RehearsalReport:
        return await self._post(RehearsalReport, resident, "rehearse", order, _TIMEOUT_S)

    async def load(self, resident: str, order: LoadOrder) -> Observed:
        return await self._post(Observed, resident, "load", order, _TIMEOUT_S)

    async def evidence(self, cursor: Cursor, wait_s: float) -> EvidenceBatch:
        """Entries after `cursor`: at once where there are some, else after up to `wait_s`."""
        asked = {"incarnation": cursor.incarnation, "after": cursor.seq, "wait": wait_s}
        query = httpx.QueryParams(asked)
        return await self._call(
            EvidenceBatch, "GET", f"/evidence?{query}", timeout_s=wait_s + _MARGIN_S
        )

    async def _post(
        self, answer: type[T], resident: str, verb: str, order: Wire, timeout_s: float
    ) -> T:
        path = f"/control/residents/{resident}/{verb}"
        return await self._call(answer, "POST", path, order, timeout_s)

    async def _call(
        self,
        answer: type[T],
        method: str,
        path: str,
        order: Wire | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> T:
        content = None if order is None else msgspec.json.encode(order)
        try:
            response = await self._client.request(
                method, path, content=content, headers=self._headers, timeout=timeout_s
            )
        except httpx.HTTPError as err:
            raise Unreachable(f"{method} {path}: {str(err) or type(err).__name__}") from err
        if not response.is_success:
            raise _failure(method, path, response)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.DecodeError as err:
            raise Unreachable(f"{method} {path}: the answer cannot be read: {err}") from err


def _failure(method: str, path: str, response: httpx.Response) -> DataPlaneError:
    status = response.status_code
    try:
        refusal = msgspec.json.decode(response.content, type=Refusal)
    except msgspec.DecodeError:
        words = f"{method} {path}: answer {status}: {response.text[:_WORDS]}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Unreachable(words)
        refusal = Refusal(error=words)
    return _REFUSALS.get(status, Refused)(status, refusal)
