"""Keeps one resident's engine running: starts it, notices its death, restarts it (DESIGN 1).

An engine that refuses what it was given, and has never served, would refuse it again: it stays
dead until `restart`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from monitors.contract import Name
from monitors.labels import ResidentState
from runtime.residents.port import Array, Generate, Ready, RequestEvent, Resident, ResidentError
from runtime.residents.refusal import ResidentRefused

FIRST_WAIT_S = 0.5
MAX_WAIT_S = 30.0
STEADY_S = 60.0  # an engine that has lived so long starts the back-off anew

log = logging.getLogger(__name__)


class Life(Resident, Protocol):
    """One life of a resident's engine: `lost` gets the reason for its end."""

    lost: "asyncio.Future[str]"

    @property
    def pid(self) -> int | None: ...
    def generate(
        self, request: Generate, arrays: Sequence[Array]
    ) -> AsyncGenerator[RequestEvent, None]: ...
    async def kill(self) -> None: ...


class NotReady(ResidentError):
    """The resident is loading, dead or stopped."""


class Supervisor:
    """`begin` makes a new life; `changed` is told of each change of state, after it happened.

    `refused`: the engine would not serve what it was given, and `detail` says why; it stays dead
    until `restart`. What served once is never `refused`: its refusal has a passing reason (memory
    that others hold, say) and is tried again like a crash.
    """

    def __init__(
        self,
        name: Name,
        *,
        begin: Callable[[], Life],
        changed: Callable[[Name], None],
        clock: Callable[[], float],
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self.name = name
        self.state = ResidentState.LOADING
        self.ready: Ready | None = None
        self.restarts = 0
        self.detail = ""
        self.refused = False
        self._begin = begin
        self._changed = changed
        self._clock = clock
        self._first_wait_s = first_wait_s
        self._failures = 0
        self._life: Life | None = None
        self._hurry = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._life is None else self._life.pid

    @property
    def resident(self) -> Life:
        """The engine, for work. Raises `NotReady`."""
        if self.state is not ResidentState.READY or self._life is None:
            raise NotReady(f"resident {self.name!r} is {self.state}: {self.detail or 'wait'}")
        return self._life

    def start(self) -> None:
        """Begin to keep the engine running."""
        self._task = asyncio.create_task(self._keep_alive(), name=f"supervisor {self.name}")

    async def restart(self, *, even_loading: bool = False) -> Ready:
        """End the engine and wait until a new one can serve: the flush that always works.

        One that is loading already is waited for: killed at each repeat of an order, a model
        that loads slowly would never come back. With `even_loading` it is ended as well, since
        what it loads is no longer wanted. Raises `NotReady` where it does not come back.
        """
        waited_for = self.state is ResidentState.LOADING and not even_loading
        old = None if waited_for else self._life
        self._hurry.set()
        if old is not None:
            await old.kill()
        while self._life is old or self.state is ResidentState.LOADING:
            if self.state is ResidentState.STOPPED:
                break
            await self._news.wait()
        if self.ready is None or self.state is not ResidentState.READY:
            raise NotReady(f"resident {self.name!r} did not come back: {self.detail}")
        return self.ready

    def forget(self) -> None:
        """Its next life is another model's: what the former one said of itself is void."""
        self.ready = None

    async def stop(self) -> None:
        """End the engine and keep it ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._life is not None:
            await self._life.close()
        self._enter(ResidentState.STOPPED, "the data plane stops")

    async def _keep_alive(self) -> None:
        while True:
            began = self._clock()
            reason = await self._live()
            steady = self._clock() - began > STEADY_S
            self._failures = 1 if steady else self._failures + 1
            self._enter(ResidentState.DEAD, reason)
            if self._life is not None:
                await self._life.kill()
            await self._back_off()
            self.refused = False
            self.restarts += 1
            self._enter(ResidentState.LOADING, f"restarting: {reason}")

    async def _live(self) -> str:
        """One life, from its start to its end; why it ended."""
        try:
            self._life = life = self._begin()
            self.ready = await life.load()
        except ResidentError as err:
            self.refused = isinstance(err, ResidentRefused) and self.ready is None
            return str(err)
        except Exception as err:  # whatever it is, nobody else would try again
            log.exception("the engine could not be started", extra={"resident": self.name})
            return f"{type(err).__name__} at its start: {err}"
        self._enter(ResidentState.READY, "")
        return await asyncio.shield(life.lost)

    async def _back_off(self) -> None:
        """Until it is worth while to try again, or somebody orders it."""
        wait_s = min(MAX_WAIT_S, self._first_wait_s * 2 ** min(self._failures - 1, 16))
        try:
            async with asyncio.timeout(None if self.refused else wait_s):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    def _enter(self, state: ResidentState, detail: str) -> None:
        self.state, self.detail = state, detail
        level = logging.WARNING if state is ResidentState.DEAD else logging.INFO
        words = f"{state}: {detail}" if detail else state
        log.log(level, "resident is %s", words, extra={"resident": self.name})
        self._news.set()
        self._news = asyncio.Event()
        self._changed(self.name)
