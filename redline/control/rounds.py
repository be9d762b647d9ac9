"""The control loop: look at the data plane, tell what fires, keep the ladders. Again and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import httpx
import msgspec

from alerts.firing import Firing
from monitors.contract import Observed
from monitors.tables import Tables, from_json
from redline.control.alert_watch import AlertWatch
from redline.control.ladder_keeper import LadderKeeper
from rollout.dataplane import DataPlane, DataPlaneError

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
        self._watch = watch
        self._keeper = keeper
        self._seen = seen
        self.observed: Observed | None = None  # in the last round; None: it did not answer

    async def once(self) -> tuple[Firing, ...] | None:
        """One round. What fires, or None where nobody can tell."""
        tables, self.observed = await asyncio.gather(self._tables(), self._observe())
        firing = await self._watch.tick(tables, self.observed)
        self._seen(firing)
        await self._keeper.tick(firing, self.observed, tables)
        return firing

    async def run(self, period_s: float) -> None:
        """For ever: a round when the watch wakes up, and every `period_s` whether or not."""
        while True:
            self._watch.wake.clear()
            await self.once()
            try:
                async with asyncio.timeout(period_s):
                    await self._watch.wake.wait()
            except TimeoutError:
                continue

    async def _observe(self) -> Observed | None:
        try:
            return await self._dataplane.observe()
        except DataPlaneError as err:
            log.warning("the data plane cannot be observed: %s", err)
            return None
