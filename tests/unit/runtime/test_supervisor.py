"""An engine kept running: ready, dead, restarted after a growing wait, and ended with the rest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from monitors.labels import ResidentState
from runtime.residents.port import Capabilities, Ready, ResidentError
from runtime.residents.refusal import ResidentRefused
from runtime.supervisor import NotReady, Supervisor

WAIT_S = 0.02


def a_ready(epoch: int) -> Ready:
    can = Capabilities(
        flush=True, probe=True, quantise_kv=True, drills=True, observes_residency=True,
        observes_video_prefill=True,
    )  # fmt: skip
    return Ready(
        version="v", weights_digest="d", pool_epoch=epoch, layers=1, page_bytes=1, pool_pages=1,
        samples_per_frame=480, capabilities=can,
    )  # fmt: skip


class FakeLife:
    """A life that loads at once, or not at all."""

    def __init__(self, number: int, loads: bool, refuses: bool) -> None:
        self.number = number
        self.loads = loads
        self.refuses = refuses
        self.held_up = asyncio.Event()
        self.held_up.set()
        self.killed = self.closed = 0
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.pid = number

    async def load(self) -> Ready:
        held_up = asyncio.ensure_future(self.held_up.wait())
        await asyncio.wait({held_up, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        held_up.cancel()
        if self.lost.done():
            raise ResidentError(self.lost.result())
        if self.refuses:
            raise ResidentRefused("the weights are damaged")
        if not self.loads:
            raise ResidentError("no memory")
        return a_ready(self.number)

    def die(self, reason: str = "died") -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    async def kill(self) -> None:
        self.killed += 1
        self.die("it was stopped")

    async def close(self) -> None:
        self.closed += 1
        self.die("it was stopped")


class Scene:
    """A supervisor, the lives it began and the states it went through."""

    def __init__(self, loads: Callable[[int], bool] = lambda _: True) -> None:
        self.lives: list[FakeLife] = []
        self.states: list[ResidentState] = []
        self.slow = False  # whether lives take until they are let to load
        self.refuses = False  # whether lives will not serve what they were given
        self._loads = loads
        self.supervisor = Supervisor(
            "a",
            begin=self._begin,
            changed=lambda _: self.states.append(self.supervisor.state),
            clock=asyncio.get_running_loop().time,
            first_wait_s=WAIT_S,
        )

    def _begin(self) -> Any:
        number = len(self.lives) + 1
        self.lives.append(FakeLife(number, self._loads(number), self.refuses))
        if self.slow:
            self.lives[-1].held_up.clear()
        return self.lives[-1]

    async def until(self, state: ResidentState, lives: int) -> None:
        async with asyncio.timeout(5):
            while not (self.supervisor.state is state and len(self.lives) == lives):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def a_scene(loads: Callable[[int], bool] = lambda _: True) -> AsyncIterator[Scene]:
    scene = Scene(loads)
    scene.supervisor.start()
    try:
        yield scene
    finally:
        await scene.supervisor.stop()


async def test_it_is_ready_once_the_engine_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with a_scene() as scene:
        with pytest.raises(NotReady, match="'a' is loading"):
            _ = scene.supervisor.resident
        await scene.until(ResidentState.READY, lives=1)
        assert "resident is ready" in caplog.messages  # and nothing behind it
        assert scene.supervisor.resident is scene.lives[0]
        assert scene.supervisor.pid == 1


async def test_a_dead_engine_is_reaped_and_restarted() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
        scene.lives[0].die("killed")
        await scene.until(ResidentState.READY, lives=2)
        assert scene.lives[0].killed == 1
        assert scene.supervisor.restarts == 1
        assert scene.states == [
            ResidentState.READY,
            ResidentState.DEAD,
            ResidentState.LOADING,
            ResidentState.READY,
        ]


async def test_each_failure_in_a_row_doubles_the_wait() -> None:
    loop = asyncio.get_running_loop()
    async with a_scene(loads=lambda number: number > 3) as scene:
        begun = loop.time()
        await scene.until(ResidentState.READY, lives=4)
        assert loop.time() - begun >= WAIT_S * (1 + 2 + 4)


async def test_the_reason_of_a_failure_is_shown() -> None:
    async with a_scene(loads=lambda _: False) as scene:
        await scene.until(ResidentState.DEAD, lives=1)
        assert scene.supervisor.detail == "no memory"


async def test_a_restart_kills_the_engine_and_waits_for_the_next_without_a_back_off() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
        ready = await asyncio.wait_for(scene.supervisor.restart(), 5)
        assert ready.pool_epoch == 2
        assert scene.lives[0].killed >= 1


async def test_a_restart_hurries_an_engine_that_waits_to_come_back() -> None:
    async with a_scene(loads=lambda number: number > 8) as scene:
        await scene.until(ResidentState.DEAD, lives=6)  # the next wait is 32 times the first
        scene._loads = lambda _: True
        ready = await asyncio.wait_for(scene.supervisor.restart(), 5)
        assert ready.pool_epoch == 7


async def test_a_restart_of_an_engine_that_loads_waits_for_it_instead_of_killing_it() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
        scene.slow = True
        restarts = [asyncio.create_task(scene.supervisor.restart())]
        await scene.until(ResidentState.LOADING, lives=2)
        restarts.append(asyncio.create_task(scene.supervisor.restart()))  # the order, repeated
        await asyncio.sleep(WAIT_S)
        assert scene.lives[1].killed == 0
        scene.lives[1].held_up.set()
        async with asyncio.timeout(5):
            assert [(await restart).pool_epoch for restart in restarts] == [2, 2]


async def test_a_restart_with_another_model_ends_an_engine_that_loads_the_former_one() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
        scene.slow = True
        scene.lives[0].die()
        await scene.until(ResidentState.LOADING, lives=2)
        scene.slow = False
        ready = await asyncio.wait_for(scene.supervisor.restart(even_loading=True), 5)
        assert (ready.pool_epoch, scene.lives[1].killed > 0) == (3, True)


async def test_an_engine_that_cannot_even_be_begun_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def loads(number: int) -> bool:
        if number == 2:
            raise OSError("too many open files")
        return True

    async with a_scene(loads) as scene:
        await scene.until(ResidentState.READY, lives=1)
        scene.lives[0].die()
        async with asyncio.timeout(5):
            while "too many open files" not in scene.supervisor.detail:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        scene._loads = lambda _: True
        await scene.until(ResidentState.READY, lives=2)
    assert "could not be started" in caplog.text


async def test_a_restart_that_fails_says_so() -> None:
    async with a_scene(loads=lambda number: number == 1) as scene:
        await scene.until(ResidentState.READY, lives=1)
        with pytest.raises(NotReady, match="did not come back: no memory"):
            await asyncio.wait_for(scene.supervisor.restart(), 5)


async def test_a_refused_checkpoint_is_not_tried_again_until_somebody_orders_it() -> None:
    async with a_scene() as scene:
        scene.refuses = True
        await scene.until(ResidentState.DEAD, lives=1)
        await asyncio.sleep(WAIT_S * 5)
        assert (scene.supervisor.state, len(scene.lives)) == (ResidentState.DEAD, 1)
        assert (scene.supervisor.refused, scene.supervisor.restarts) == (True, 0)
        assert scene.supervisor.detail == "the weights are damaged"
        assert scene.lives[0].killed == 1, "not reaped"
        with pytest.raises(NotReady, match="did not come back: the weights are damaged"):
            await asyncio.wait_for(scene.supervisor.restart(), 5)
        scene.refuses = False
        assert (await asyncio.wait_for(scene.supervisor.restart(), 5)).pool_epoch == 3
        assert (scene.supervisor.refused, scene.supervisor.restarts) == (False, 2)


async def test_a_crash_after_a_refusal_is_tried_again() -> None:
    async with a_scene(loads=lambda number: number != 2) as scene:
        scene.refuses = True
        await scene.until(ResidentState.DEAD, lives=1)
        scene.refuses = False
        with pytest.raises(NotReady, match="no memory"):
            await asyncio.wait_for(scene.supervisor.restart(), 5)
        assert not scene.supervisor.refused
        await scene.until(ResidentState.READY, lives=3)


async def test_stop_ends_an_engine_that_was_refused() -> None:
    async with a_scene() as scene:
        scene.refuses = True
        await scene.until(ResidentState.DEAD, lives=1)
    assert scene.supervisor.state is ResidentState.STOPPED


async def test_stop_ends_the_engine_for_good() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
    assert scene.lives[0].closed == 1
    assert scene.supervisor.state is ResidentState.STOPPED
    await asyncio.sleep(WAIT_S * 2)
    assert len(scene.lives) == 1


async def test_what_served_once_and_is_refused_after_a_crash_is_tried_again() -> None:
    async with a_scene() as scene:
        await scene.until(ResidentState.READY, lives=1)
        scene.refuses = True  # for want of memory, say
        scene.lives[0].die()
        await scene.until(ResidentState.DEAD, lives=2)
        assert scene.supervisor.detail == "the weights are damaged"
        assert not scene.supervisor.refused, "it does not stay dead"
        scene.refuses = False
        await scene.until(ResidentState.READY, lives=3)
