"""Every request in flight: routed, admitted, found again by resident, ended with the process."""

import asyncio
from collections import OrderedDict

from monitors.contract import Admission, Name
from monitors.labels import Outcome
from runtime import refusals
from runtime.ask import Ask
from runtime.flight import Flight
from runtime.mirror import Mirror
from runtime.plane import DataPlane

KNOWN_SESSIONS = 10_000


class Flights:
    """Every request in flight, and the sessions that are known."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._flights: dict[str, Flight] = {}
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self.mirror = Mirror(plane)
        plane.in_flight = lambda name: len(self.on(name)) + len(self.mirror.on(name))

    def on(self, name: Name) -> list[Flight]:
        """The flights that one resident has still to do with."""
        return [f for f in self._flights.values() if f.resident == name and not f.left.done()]

    def open(self, ask: Ask) -> Flight:
        """Route a request. Raises `ApiError` where no resident may or can take it."""
        name = ask.pinned or self._plane.router.pick(ask.session or ask.request_id, ask.client)
        if not self._plane.is_ready(name):
            if ask.pinned is None:
                self._plane.book.unserved(self._plane.versions[name], Outcome.REFUSED)
            raise refusals.not_ready(name, self._plane.supervisors[name].state)
        if ask.pinned is None:
            self._admit(ask, name)
        flight = Flight(self._plane, ask, name, self.mirror)
        self._flights[ask.request_id] = flight
        flight.landed.add_done_callback(lambda _: self._flights.pop(ask.request_id))
        return flight

    def require_room(self) -> None:
        """Raises `ApiError` where all requests together hold more decoded media than they may."""
        held = sum(flight.held_bytes for flight in self._flights.values())
        if held > self._plane.settings.limits.held_bytes:
            raise refusals.crowded(held)

    async def end(self, grace_s: float) -> None:
        """Let those in flight finish for a while; the rest are told that the server stops."""
        landings = [flight.landed for flight in self._flights.values()]
        if landings:
            await asyncio.wait(landings, timeout=grace_s)
        for flight in self._flights.values():
            flight.abort(Outcome.CANCELLED, refusals.stopping(begun=flight.begun))
        await self.mirror.end()

    def _admit(self, ask: Ask, name: Name) -> None:
        session, level = ask.session, self._plane.levels.of(name, ask.session_class)
        if level.admission is Admission.LIMITED and session not in self._sessions:
            self._plane.book.unserved(self._plane.versions[name], Outcome.REFUSED)
            raise refusals.limited()
        if session is not None:
            self._sessions[session] = None
            self._sessions.move_to_end(session)
            if len(self._sessions) > KNOWN_SESSIONS:
                self._sessions.popitem(last=False)
