"""`POST /v1/chat/completions`: one request from its bytes to the last event of its answer."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from monitors import client_key, logs
from monitors.contract import MediaRung, Name, SessionClass
from monitors.labels import Outcome, Stage
from monitors.requests import Asked
from monitors.rungs import shown
from runtime import turns, uploads
from runtime.ask import Ask
from runtime.flight import Flight
from runtime.flights import Flights
from runtime.guard import Guard
from runtime.openai_answer import Answer, details, failed
from runtime.openai_api import ChatRequest, parse
from runtime.openai_errors import INTERNAL_ERROR, ApiError, bad_request, id_headers
from runtime.plane import DataPlane
from runtime.remote import RemoteMedia
from runtime.residents.port import AudioDelta, Finished, TextDelta
from runtime.router import UnknownResident
from runtime.traces import RequestTrace

SESSION = "x-redline-session"
SESSION_CLASS = "x-redline-class"
FIDELITY = "x-redline-fidelity"
RESIDENT = "x-redline-resident"
CLIENT_CLOSED = 499  # nobody reads it; it only shows in the access log

_WISHES = {"full": MediaRung.FULL, "low_latency": MediaRung.P160_8K}  # S2.5

Delta = TextDelta | AudioDelta
Events = AsyncIterator[Delta | Finished]
Result = TypeVar("Result")


class Chat:
    """The endpoint. `remote` None: media named by its address is not fetched."""

    def __init__(
        self, plane: DataPlane, flights: Flights, guard: Guard, remote: RemoteMedia | None
    ) -> None:
        self._plane = plane
        self._flights = flights
        self._guard = guard
        self._remote = remote

    async def __call__(self, request: Request) -> Response:
        """Answers with a stream or an object. Raises `ApiError`."""
        trace = self._plane.requests.open(dict(request.headers))
        request.state.request_id = trace.request_id  # for answers that are errors
        logs.about(trace.log_fields)
        flight = None
        try:
            flight = self._flights.open(await self._ask(request, trace))
            return await _unless_gone(request, self._answer(flight))
        except BaseException as err:
            trace.told(*_told(err))
            if flight is None:
                trace.end(_outcome(err))
            else:
                await flight.close(_outcome(err))
            if isinstance(err, ClientDisconnect):
                return Response(status_code=CLIENT_CLOSED)
            raise

    async def _answer(self, flight: Flight) -> Response:
        await flight.decode()
        self._flights.require_room()
        chat = flight.ask.chat
        answer = Answer(flight.ask.request_id, int(self._plane.wall()), chat.speech)
        return await (_stream if chat.stream else _whole)(flight, answer)

    async def _ask(self, request: Request, trace: RequestTrace) -> Ask:
        limits, clock = self._plane.settings.limits, self._plane.clock
        began = clock()
        upload = await uploads.read(request, limits, clock)
        trace.stage(Stage.RECEIVE, began, upload.at)
        headers = dict(request.headers)
        chat = parse(upload.body, limits)
        trace.said((m.role, turns.texts(m)) for m in chat.messages)
        fetched, at = await self._fetch(request, chat, upload.at)
        if at > upload.at:
            trace.stage(Stage.FETCH, upload.at, at)
        ask = Ask(
            session=_session(headers) or chat.user,
            chat=chat,
            files=upload.files | fetched,
            digests=upload.digests,
            since=at,
            wish=_wish(headers),
            pinned=self._pinned(request),
            salt=_salt(headers),
            trace=trace,
            client=client_key.of_headers(headers),
            session_class=_session_class(headers),
        )
        trace.asked(
            Asked(
                model=chat.model,
                max_tokens=chat.tokens(self._plane.settings.default_max_tokens),
                speech=chat.speech,
                stream=chat.stream,
                media=ask.wish,
            ),
            ask.session,
            operator=ask.pinned is not None,
        )
        return ask

    async def _fetch(
        self, request: Request, chat: ChatRequest, at: float
    ) -> tuple[dict[str, bytes], float]:
        """Media that is only named, and when the last input byte was there: no resident is to
        blame for how long others take to send it."""
        wanted = turns.addresses(chat)
        if self._remote is None or not wanted:
            return {}, at
        fetched = await _unless_gone(request, self._remote.fetch(wanted))
        return fetched, self._plane.clock()

    def _pinned(self, request: Request) -> Name | None:
        """The resident that an operator asks for, whatever its weight, quarantined or not: a smoke
        test is how one sees what it is worth."""
        name = request.headers.get(RESIDENT)
        if name is None:
            return None
        try:
            self._guard.require_operator(request)
        except ApiError as err:
            message = f"{RESIDENT} is for operators: {err.message}"
            raise ApiError(403, message, code="forbidden", param=RESIDENT) from err
        try:
            self._plane.router.require(name)
        except UnknownResident as err:
            raise ApiError(404, str(err), code="unknown_resident", param=RESIDENT) from err
        return name


async def _stream(flight: Flight, answer: Answer) -> Response:
    """A stream that starts with the first event, so that an early failure has its status."""
    events = flight.events()
    first = await anext(events)
    flight.trace.told(200)
    chunks = _Chunks(flight, answer, first, events)
    return _FlightStream(flight, chunks, _headers(flight))


async def _whole(flight: Flight, answer: Answer) -> Response:
    finished, legs = None, 0
    async for event in flight.events():
        if flight.legs != legs:  # the first, or one on another resident: nothing was sent yet
            legs = flight.legs
            answer.restart()
        if isinstance(event, Finished):
            finished = event
        else:
            answer.add(event)
            flight.sent(event)  # it leaves later: the object is one piece
    assert finished is not None, "events end with a Finished, or raise"
    form = flight.ask.chat.audio.format if flight.ask.chat.audio else None
    body = answer.whole(finished, form, _details(flight))
    headers = _headers(flight)
    flight.trace.told(200)
    await flight.close()
    return JSONResponse(body, headers=headers)


class _Chunks:
    """The bytes of a stream. A delta counts as sent once the next one is asked for: until then
    the server holds it."""

    def __init__(
        self, flight: Flight, answer: Answer, first: Delta | Finished, events: Events
    ) -> None:
        self._flight = flight
        self._answer = answer
        self._first = first
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for event in self._all():
                if isinstance(event, Finished):
                    usage = self._flight.ask.chat.wants_usage
                    yield self._answer.last_chunks(event, _details(self._flight), with_usage=usage)
                else:
                    yield self._answer.chunk(event)
                    self._flight.sent(event)
        except ApiError as err:
            self._flight.trace.told(200, err.code)
            yield failed(err, self._flight.ask.request_id)

    async def _all(self) -> Events:
        yield self._first
        async for event in self._events:
            yield event


class _FlightStream(StreamingResponse):
    """Server-sent events that end their flight however they end: also before they begin."""

    def __init__(self, flight: Flight, chunks: _Chunks, headers: Mapping[str, str]) -> None:
        super().__init__(chunks, headers=headers, media_type="text/event-stream")
        self._flight = flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(ClientDisconnect):
                await super().__call__(scope, receive, send)
        except Exception:
            self._flight.trace.told(200, INTERNAL_ERROR)
            await self._flight.close(Outcome.FAILED)
            raise
        finally:
            await self._flight.close()


def _told(err: BaseException) -> tuple[int | None, str | None]:
    """Status and code of the answer that an error becomes; no status: nobody is there to hear."""
    if isinstance(err, ApiError):
        return err.status, err.code
    if isinstance(err, ClientDisconnect | asyncio.CancelledError):
        return None, None
    return 500, INTERNAL_ERROR


def _outcome(err: BaseException) -> Outcome:
    """How a request ended that no resident brought to an end."""
    if isinstance(err, ApiError):
        return Outcome.REFUSED
    gone = isinstance(err, ClientDisconnect | asyncio.CancelledError)
    return Outcome.CANCELLED if gone else Outcome.FAILED


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The outcome of `work`. Cancels it and raises `ClientDisconnect` when the client leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _headers(flight: Flight) -> dict[str, str]:
    stamp = flight.watch.stamp
    return {
        **id_headers(stamp.request_id),
        "X-Redline-Version": stamp.version,
        "X-Redline-Level": shown(stamp.level),
        "Cache-Control": "no-cache",
    }


def _details(flight: Flight) -> dict[str, Any]:
    stamp = flight.watch.stamp
    level, now = shown(stamp.level), shown(flight.level_now)
    return details(stamp.request_id, stamp.version, level, now, flight.watch.first_output)


def _session(headers: Mapping[str, str]) -> str | None:
    session = headers.get(SESSION)
    if session is not None and not 1 <= len(session) <= 128:
        raise bad_request(f"{SESSION}: 1 to 128 characters", param=SESSION)
    return session


def _session_class(headers: Mapping[str, str]) -> SessionClass:
    named = headers.get(SESSION_CLASS, SessionClass.INTERACTIVE)
    if named not in list(SessionClass):
        raise bad_request(
            f"{SESSION_CLASS}: {named!r} is not one of {', '.join(SessionClass)}",
            param=SESSION_CLASS,
        )
    return SessionClass(named)


def _wish(headers: Mapping[str, str]) -> MediaRung:
    wish = headers.get(FIDELITY, "full")
    if wish not in _WISHES:
        raise bad_request(
            f"{FIDELITY}: {wish!r} is not one of {', '.join(_WISHES)}", param=FIDELITY
        )
    return _WISHES[wish]


def _salt(headers: Mapping[str, str]) -> str:
    """Keeps the cached prompts of clients with different credentials apart."""
    credentials = headers.get("authorization", "")
    return hashlib.blake2b(credentials.encode(), digest_size=8).hexdigest() if credentials else ""
