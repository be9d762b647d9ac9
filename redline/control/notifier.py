"""Tells receivers of rollouts, out of the journal: in order, at least once, in nobody's way."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import httpx
import msgspec

from alerts.notify import POSITIONS, NoAddress, Receiver
from monitors.contract import Wire
from monitors.handles import CounterHandle
from monitors.journal import Entry, Journal, JournalUnwritable, StaleLeader
from redline.control.notice_forms import body
from redline.control.notices import KINDS, Notice, Position, told

ACTOR = "notifier"
PAGE = 100  # entries read at once
POLL_S = 5.0  # where nobody wakes it: for entries that were journalled late
TIMEOUT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between attempts; each is twice the one before
REFUSALS = 3  # so often a 4xx is believed to be about the moment, not about the notice
TOO_OLD_S = 86_400.0  # what a receiver was away for longer than is no news to it any more
_NOT_NOW = frozenset({408, 425, 429})

log = logging.getLogger(__name__)


class Positions(Wire, frozen=True):
    """How far each receiver was told, by name."""

    of: dict[str, Position] = msgspec.field(default_factory=dict[str, Position])


class NotTold(RuntimeError):
    """A receiver did not take a notice. `for_good`: it said that it never will."""

    def __init__(self, why: str, *, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good


async def send(client: httpx.AsyncClient, receiver: Receiver, notice: Notice) -> None:
    """One attempt. Raises `NotTold` in words that do not show the URL."""
    content = body(receiver.form, notice)
    headers = {"Content-Type": "application/json", "X-Redline-Notice": str(notice.id)}
    try:
        async with (
            asyncio.timeout(2 * TIMEOUT_S),  # however slowly it answers
            client.stream(
                "POST", receiver.url(), content=content, headers=headers, timeout=TIMEOUT_S
            ) as answer,
        ):
            status = answer.status_code  # whatever else it says is not read
    except NoAddress as err:
        raise NotTold(str(err)) from err
    except Exception as err:  # whatever it is, it is in nobody else's way
        raise NotTold(f"{receiver.name} does not answer: {type(err).__name__}") from err
    if not 200 <= status < 300:
        for_good = 400 <= status < 500 and status not in _NOT_NOW
        raise NotTold(f"{receiver.name} answers {status}", for_good=for_good)


class Notifier:
    """One instance per leadership. `run` for ever; `wake` when something was journalled.

    `counter`: of notices taken, to be repeated, and given up.
    """

    def __init__(
        self,
        journal: Journal,
        receivers: Sequence[Receiver],
        leader_epoch: int,
        counter: CounterHandle,
        *,
        pause_s: float = FIRST_PAUSE_S,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._receivers = receivers
        self._leader_epoch = leader_epoch
        self._counter = counter
        self._pause_s = pause_s
        self._wall = wall
        self._woken = {receiver.name: asyncio.Event() for receiver in receivers}
        self._positions: dict[str, Position] = {}
        self._writing = asyncio.Lock()

    def wake(self) -> None:
        """There may be news."""
        for event in self._woken.values():
            event.set()

    async def run(self) -> None:
        """Each receiver by itself: one that is away keeps no other waiting."""
        if not self._receivers:
            return
        try:
            await self._find_positions()
        except StaleLeader as err:
            log.warning("nobody is told of rollouts by this one: %s", err)
            return
        async with httpx.AsyncClient() as client, asyncio.TaskGroup() as group:
            for receiver in self._receivers:
                group.create_task(self._keep_telling(client, receiver))

    # ------------------------------------------------------------ where it stands
    async def _find_positions(self) -> None:
        """Where the last leader stood; a receiver that is new hears of what comes, not of what
        was."""
        while True:
            try:
                kept, end = await asyncio.to_thread(self._found)
                break
            except JournalUnwritable as err:
                log.error("nobody is told of rollouts yet: %s", err)
                await asyncio.sleep(POLL_S)
        self._positions = {r.name: kept.of.get(r.name, end) for r in self._receivers}
        await self._keep()

    def _found(self) -> tuple[Positions, Position]:
        entry = self._journal.last(POSITIONS)
        try:
            kept = Positions() if entry is None else entry.read_as(Positions)
        except msgspec.ValidationError as err:  # written by another release
            log.warning("how far receivers were told cannot be read, they start anew: %s", err)
            kept = Positions()
        end = Position()
        for last in filter(None, map(self._journal.last, KINDS)):
            end = msgspec.structs.replace(told(end, last)[0], upto=max(end.upto, last.id))
        return kept, end

    async def _keep(self) -> None:
        """Where it cannot be journalled now, the next one is; a crash before tells twice."""
        async with self._writing:
            positions = Positions(of=dict(self._positions))
            try:
                await asyncio.to_thread(
                    self._journal.append, POSITIONS, ACTOR, positions, self._leader_epoch
                )
            except JournalUnwritable as err:
                log.warning("how far receivers were told is not journalled: %s", err)

    # ------------------------------------------------------------ telling
    async def _keep_telling(self, client: httpx.AsyncClient, receiver: Receiver) -> None:
        woken = self._woken[receiver.name]
        while True:
            woken.clear()
            try:
                while entries := await asyncio.to_thread(self._page, receiver.name):
                    for entry in entries:
                        await self._tell_of(client, receiver, entry)
            except JournalUnwritable as err:
                log.warning("news for %s cannot be read: %s", receiver.name, err)
            except StaleLeader as err:
                log.warning("nobody is told of rollouts by this one any more: %s", err)
                return  # who leads is for the lease to say
            try:
                await asyncio.wait_for(woken.wait(), POLL_S)
            except TimeoutError:
                continue

    def _page(self, name: str) -> list[Entry]:
        return self._journal.read(after=self._positions[name].upto, kinds=KINDS, limit=PAGE)

    async def _tell_of(self, client: httpx.AsyncClient, receiver: Receiver, entry: Entry) -> None:
        position, notice = told(self._positions[receiver.name], entry)
        if notice is not None and notice.event in receiver.tell:
            taken = await self._insist(client, receiver, notice)
            self._counter.inc("taken" if taken else "refused")
            self._positions[receiver.name] = position
            await self._keep()
        self._positions[receiver.name] = position

    async def _insist(self, client: httpx.AsyncClient, receiver: Receiver, notice: Notice) -> bool:
        """Until it is taken; False where it is given up: refused for good, or no news any more."""
        pause_s, refused = self._pause_s, 0
        while self._wall() - notice.wall < TOO_OLD_S:
            try:
                await send(client, receiver, notice)
                return True
            except NotTold as err:
                refused += err.for_good
                log.warning("%r is not told yet: %s", notice.title, err)
                if refused >= REFUSALS:
                    break
            self._counter.inc("repeated")
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2.0 * pause_s)
        log.error("%s is never told: %s", receiver.name, notice.title)
        return False
