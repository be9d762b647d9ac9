"""Drives a controller: one task that long-polls the evidence, and a scheduler for the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC

from apscheduler.schedulers.asyncio import AsyncIOScheduler  # pyright: ignore[reportMissingTypeStubs]

from rollout.controller import RolloutController

_RETRY_S = 0.5  # between polls that were not answered


class RolloutRunner:
    """`open` on a running event loop, `close` before it ends. Ticks also see the bake's end."""

    def __init__(self, controller: RolloutController, tick_s: float = 1.0) -> None:
        lines = controller.lines.rollout
        self._controller = controller
        self._wait_s = min(5.0, lines.evidence_stale_s / 3.0)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._every(tick_s, controller.tick)
        self._every(lines.lease_renewal_s, controller.renew)
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """See the data plane once, then begin to poll and to tick."""
        await self._controller.tick()
        self._scheduler.start()
        self._reader = asyncio.create_task(self._read(), name="rollout evidence")

    async def watch(self) -> None:
        """Until the reader ends, which is by an error: raises it. A rollout that nobody judges
        must not go on quietly."""
        if self._reader is not None:
            await self._reader

    async def close(self) -> None:
        """Stop where it is; the journal knows how to go on."""
        self._scheduler.shutdown(wait=False)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def _every(self, seconds: float, job: Callable[[], Awaitable[None]]) -> None:
        self._scheduler.add_job(job, "interval", seconds=seconds)  # pyright: ignore[reportUnknownMemberType]

    async def _read(self) -> None:
        while True:
            if not await self._controller.poll(self._wait_s):
                await asyncio.sleep(_RETRY_S)
