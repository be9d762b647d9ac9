"""What an engine counted is counted once, however its life ends."""

import re
from pathlib import Path

from monitors import catalog
from monitors.cache_table import LOOKUP
from tests.support.gateway import ALONE, B, Gateway, running_gateway, settings_for, until


def counted(gateway: Gateway) -> tuple[float, float]:
    """The engine's steps on `/metrics`, and its lookup mass, by which the scripted one means the
    same, in table 1."""
    plane = gateway.plane
    (state,) = plane.book.cache.cells(plane.clock())
    shown = plane.render_metrics(None)[0].decode()
    (steps,) = re.findall(rf"^{catalog.STEPS.name}{{.*}} (.*)$", shown, re.MULTILINE)
    return float(steps), float(state.totals[0, LOOKUP])


async def test_steps_are_counted_once_through_a_death_and_a_restart_by_order(
    tmp_path: Path,
) -> None:
    async with running_gateway(settings_for(tmp_path, **ALONE)) as gateway:
        plane = gateway.plane

        async def serve(past: int) -> int:
            """Answer until the engine has told of more steps than this; how many it tells of."""
            while B not in plane.snapshots or plane.snapshots[B].steps <= past:
                assert (await gateway.chat("hi")).status_code == 200
            return plane.snapshots[B].steps

        async def die() -> None:
            await gateway.drill(B, "kill")
            await until(lambda: not plane.is_ready(B))

        steps = await serve(0)
        for end in (die, plane.supervisors[B].restart):
            steps = (await plane.supervisors[B].resident.observe()).steps  # all, as it is idle
            before, _ = counted(gateway)
            await end()
            await until(lambda: plane.is_ready(B))
            steps = await serve(past=steps)  # its predecessor's: no fall tells them apart
            assert counted(gateway) == (before + steps, before + steps)
