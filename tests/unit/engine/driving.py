"""An engine driven by hand: submit, step, and look at what came out."""

from dataclasses import dataclass, field
from typing import TypeVar

from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.model.checkpoint import Checkpoint
from runtime.residents.port import Array, AudioDelta, Failed, Finished, Generate, RequestEvent

Event = TypeVar("Event")
MANY_STEPS = 2000


class Killed(Exception):
    """The kill drill reached the end of the process."""


@dataclass
class Clock:
    """Moves on by a millisecond at each look, so that no two times are equal."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Driver:
    """`log` holds every event in order, of all requests."""

    def __init__(self, loaded: Checkpoint, *, pool_bytes: int = 8_000_000, **more: object) -> None:
        self.clock = Clock()
        self.log: list[RequestEvent] = []
        settings = EngineSettings("a", "v1", pool_bytes, **more)
        self.engine = Engine(
            loaded, settings, clock=self.clock, die=self._die, sleep=self.clock.sleep
        )

    def submit(self, request: tuple[Generate, list[Array]]) -> str:
        self.engine.submit(*request)
        return request[0].request_id

    def step(self, steps: int = 1) -> list[RequestEvent]:
        events = [event for _ in range(steps) for event in self.engine.step()]
        self.log += events
        return events

    def settle(self) -> None:
        """Step until there is nothing left to do."""
        for _ in range(MANY_STEPS):
            self.step()
            if self.engine.idle:
                return
        raise AssertionError(f"not idle after {MANY_STEPS} steps")

    def run(self, request: tuple[Generate, list[Array]]) -> Finished:
        """One request from its submission to its end, which must be a good one."""
        name = self.submit(request)
        self.settle()
        ends = self.of(name, (Finished, Failed))
        assert len(ends) == 1
        assert isinstance(ends[0], Finished), ends[0]
        return ends[0]

    def of(self, name: str, kind: type[Event] | tuple[type[Event], ...]) -> list[Event]:
        return [e for e in self.log if isinstance(e, kind) and e.request_id == name]

    def failure(self, name: str) -> Failed:
        (failed,) = self.of(name, Failed)
        return failed

    def text(self, name: str) -> str:
        return "".join(getattr(e, "text", "") for e in self.log if e.request_id == name)

    def pcm(self, name: str) -> bytes:
        return b"".join(e.pcm for e in self.of(name, AudioDelta))

    def _die(self) -> None:
        raise Killed
