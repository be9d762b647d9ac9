"""A control plane in this process, over a simulated data plane, in office or about to be."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redline.control.plane import ControlPlane
from redline.control.settings import ControlSettings
from rollout.controller import RolloutController
from tests.support.sim_dataplane import SimDataPlane

TOKEN = "a-token-for-tests"
TTL_S = 2.0  # long enough for a machine that stalls now and then


class Office:
    """A control plane over a simulated data plane, and whether it was deposed."""

    def __init__(
        self, folder: Path, dataplane: SimDataPlane, port: int = 1, **settings: Any
    ) -> None:
        self.deposed = 0
        made = ControlSettings(
            port=port,
            state_dir=folder,
            runtime_url="http://127.0.0.1:1",
            token=TOKEN,
            prometheus=True,
            leader_ttl_s=TTL_S,
            tick_s=0.02,
            **settings,
        )
        self.plane = ControlPlane(made, deposed=self._deposed)
        self.plane._dataplane = dataplane

    def _deposed(self) -> None:
        self.deposed += 1

    @property
    def controller(self) -> RolloutController:
        assert self.plane.controller is not None
        return self.plane.controller

    def metrics(self) -> str:
        return self.plane.render_metrics(None)[0].decode()


@asynccontextmanager
async def in_office(office: Office) -> AsyncIterator["asyncio.Task[None]"]:
    """The plane runs and leads."""
    running = asyncio.create_task(office.plane.run())
    running.add_done_callback(office.plane.ended)
    try:
        await until(lambda: office.plane.controller is not None or running.done())
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await office.plane.close()


async def until(holds: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.01)
