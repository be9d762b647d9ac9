"""The control loop: look at the data plane, tell what fires, keep the ladders. Again and again."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx
import msgspec

from alerts.firing import Firing
from monitors.contract import Observed
from monitors.tables import Tables, from_json
from redline.control.alert_watch import AlertWatch
from redline.control.ladder_keeper import LadderKeeper
from rollout.dataplane import DataPlane, DataPlaneError

LEAST_S = 0.1  # between two rounds, however many webhooks come
Seen = Callable[[tuple[Firing, ...] | None], None]

log = logging.getLogger(__name__)


class TableReader:
    """`GET /tables` of the data plane; None where it does not answer."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"}

    async def read(self) -> Tables | None:
        try:
            answer = await self._client.get("/tables", headers=self._headers, timeout=2.0)
            answer.raise_for_status()
            return from_json(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as err:
            log.warning("the tables cannot be read: %s", err)
            return None


class Rounds:
    """Levels, not edges: each round compares what is wanted with what is seen, so the next one
    mends what this one could not do. `seen` hears what fires before anything acts on it."""

    def __init__(
        self,
        dataplane: DataPlane,
        tables: Callable[[], Awaitable[Tables | None]],
        watch: AlertWatch,
        keeper: LadderKeeper,
        seen: Seen,
    ) -> None:
        self._dataplane = dataplane
        self._tables = tables
        self.watch = watch
        self._keeper = keeper
        self._seen = seen
        self.observed: Observed | None = None  # in the last round; None: it did not answer

    async def once(self) -> tuple[Firing, ...] | None:
        """One round. What fires, or None where nobody can tell."""
        tables, self.observed = await asyncio.gather(self._tables(), self._observe())
        firing = await self.watch.tick(tables, self.observed)
        self._seen(firing)
        await self._keeper.tick(firing, self.observed, tables)
        return firing

    async def run(self, slow_s: float, fast_s: float) -> None:
        """For ever: a round when the watch wakes up, and whether or not every `slow_s`, or every
        `fast_s` where the tables are all that tells what fires."""
        least_s = min(LEAST_S, slow_s, fast_s)
        while True:
            began = time.monotonic()
            self.watch.wake.clear()
            await self.once()
            next_at = began + self.watch.pause_s(began, slow_s, fast_s)
            await self._wake_or(next_at - time.monotonic())
            await asyncio.sleep(began + least_s - time.monotonic())

    async def _wake_or(self, after_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await self.watch.wake.wait()

    async def _observe(self) -> Observed | None:
        try:
            return await self._dataplane.observe()
        except DataPlaneError as err:
            log.warning("the data plane cannot be observed: %s", err)
            return None
