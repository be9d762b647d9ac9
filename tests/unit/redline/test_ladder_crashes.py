"""`kill -9` before and after every entry and every order: the ladder ends where it would have.

The operator repeats a command that was not acknowledged, as people do. One thing is not asked
for: a freeze that no disk took dies with the process that held it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.firing import Firing
from alerts.ladder import Mode
from alerts.overrides import OverrideError
from alerts.parts import Part
from monitors.contract import (
    ALL_CLASSES,
    LadderOrder,
    Level,
    MediaRung,
    Observed,
    SessionClass,
    Wire,
)
from monitors.journal import Entry, JournalUnwritable
from monitors.labels import Action, Milestone
from monitors.latency_table import LatencyRow
from monitors.redlines import LadderLines, LatencyLines, RedLines
from monitors.tables import Tables, lines_shown, windows
from redline.control.ladder_api import HoldOrder, ReleaseOrder
from redline.control.ladder_keeper import LadderKeeper
from tests.support.sim_dataplane import Clock, SimDataPlane

DWELL_S, MAX_DWELL_S, PARTS = 1.0, 4.0, 4
# Half a step: as long as it takes to come down or back, a rung of each part and a dwell more that
# was begun again. The next step's worsening is a relapse and that of the one after it is none,
# whatever was killed: relapses are no matter of a second.
HALF_S = (PARTS + 2) * MAX_DWELL_S
LINES = RedLines(
    latency=LatencyLines(window_s=DWELL_S, min_count=5),
    ladder=LadderLines(
        dwell_s=DWELL_S, max_dwell_s=MAX_DWELL_S, relapse_s=2 * HALF_S + 2, lease_s=400.0,
        moves_per_hour=6, memory_s=3_600.0, trust_s=1e6,
    ),
)  # fmt: skip
WORK_S = {MediaRung.FULL: 0.08, MediaRung.P360_8K: 0.05, MediaRung.P160_8K: 0.04}
LOW, HIGH = 5.0, 12.0  # requests a second: full fidelity bears the one
BATCH = (SessionClass.BATCH,)


class Killed(BaseException):
    """`kill -9`: nothing after it happens, and nobody may catch it as an error."""


class Points:
    """The moments at which a process can die: each side of an entry or of a memory, and after an
    order. Before an order is after the entry that it follows."""

    def __init__(self, fatal: int | None) -> None:
        self.passed = 0
        self.fatal = fatal

    def at(self) -> None:
        self.passed += 1
        if self.passed == self.fatal:
            raise Killed


class Disk:
    """A journal in memory, in the form that it has on disk; that one has tests of its own."""

    def __init__(self, points: Points) -> None:
        self.full = False
        self._points = points
        self._entries: list[Entry] = []
        self._memories: dict[str, bytes] = {}

    def append(self, kind: str, actor: str, body: Wire, leader_epoch: int) -> Entry:
        self._points.at()
        if self.full:
            raise JournalUnwritable("the disk is full: free some space")
        self._entries.append(
            Entry(
                id=len(self._entries) + 1, wall=0.0, leader_epoch=leader_epoch, actor=actor,
                kind=kind, body=msgspec.Raw(msgspec.json.encode(body)),
            )
        )  # fmt: skip
        self._points.at()
        return self._entries[-1]

    def remember(self, name: str, body: Wire, leader_epoch: int) -> None:
        self._points.at()
        if self.full:
            raise JournalUnwritable("the disk is full: free some space")
        self._memories[name] = msgspec.json.encode(body)
        self._points.at()

    def remembered(self, name: str, body_type: type[Any]) -> Any:
        body = self._memories.get(name)
        return None if body is None else msgspec.json.decode(body, type=body_type)

    def last(self, kind: str) -> Entry | None:
        return next((entry for entry in reversed(self._entries) if entry.kind == kind), None)

    def read(self, after: int, kinds: Sequence[str], limit: int) -> list[Entry]:
        later = [entry for entry in self._entries[after:] if entry.kind in kinds]
        return later[:limit]


class DataPlane(SimDataPlane):
    points: Points

    async def set_level(self, order: LadderOrder) -> Observed:
        observed = await super().set_level(order)
        self.points.at()
        return observed


class Do(StrEnum):
    """What happens at the start of a step."""

    NOTHING = "nothing"
    HOLD = "hold"
    HOLD_BATCH = "hold batch"
    HOLD_BRIEFLY = "hold briefly"
    RELEASE = "release"
    FREEZE = "freeze"
    THAW = "thaw"
    AWAY = "the data plane is away"
    FULL = "the disk is full"


@dataclass(frozen=True)
class Step:
    """It happens, and then these alerts of v1 fire for a while. `more`: once it is served less,
    more is asked."""

    do: Do
    fires: tuple[Action, ...] = ()
    more: bool = False


@dataclass
class World:
    """One stack, and leaders that may be killed."""

    points: Points
    clock: Clock = field(default_factory=Clock)
    leaders: int = 0
    more: bool = False

    def __post_init__(self) -> None:
        self.journal = Disk(self.points)
        self.plane = DataPlane(self.clock, LINES)
        self.plane.points = self.points
        self.lead()

    def lead(self) -> None:
        """A new leader, which knows only the journal."""
        self.leaders += 1
        self.keeper = LadderKeeper(
            self.journal, self.plane, LINES, self.leaders,
            on_move=lambda _: None, clock=self.clock, wall=self.clock,
        )  # fmt: skip

    async def survive(self, action: Callable[[], Awaitable[Any]]) -> None:
        """Again, under a new leader, where the process dies of it."""
        try:
            await action()
        except Killed:
            self.lead()
            await self.tick(None)  # it looks first
            await action()

    async def tick(self, firing: tuple[Firing, ...] | None) -> None:
        served = self.plane.residents["b"].level
        waits = served.media or served.shed or served.admission
        per_s = HIGH if self.more and waits else LOW
        self.plane.busy_share = WORK_S[served.media] * per_s
        observed = await self.plane.observe() if self.plane.reachable else None
        await self.keeper.tick(firing, observed, answered(per_s) if observed else None)

    async def run(self, script: Sequence[Step]) -> "World":
        await self.survive(lambda: self.tick(()))
        for step in script:
            self.more = step.more
            await self._do(step.do)
            await self.seconds(HALF_S, step.fires)
            self.plane.reachable, self.journal.full = True, False
            await self.seconds(HALF_S, step.fires)
        return self

    async def seconds(self, count: float, fires: tuple[Action, ...]) -> None:
        firing = tuple(
            Firing(alert=str(a), action=a, version="v1", labels={}, starts_at=0.0) for a in fires
        )
        end = self.clock() + count
        while self.clock() < end:
            await self.survive(lambda: self.tick(firing))
            self.clock.advance(1.0)

    async def _do(self, do: Do) -> None:
        parts = {Part.MEDIA: 2, Part.ADMISSION: 1}
        match do:
            case Do.NOTHING:
                return
            case Do.HOLD | Do.HOLD_BATCH | Do.HOLD_BRIEFLY:
                order = HoldOrder(
                    resident="b", classes=BATCH if do is Do.HOLD_BATCH else ALL_CLASSES,
                    parts=parts, for_s=3.0 if do is Do.HOLD_BRIEFLY else 1e6,
                    actor="ann", reason="a fair",
                )  # fmt: skip
                await self.survive(lambda: self.keeper.hold(order))
            case Do.RELEASE:
                await self.survive(self._release)
            case Do.FREEZE | Do.THAW:
                mode = Mode.FROZEN if do is Do.FREEZE else Mode.LIVE
                await self.survive(lambda: self.keeper.set_mode(mode, "ann"))
            case Do.AWAY:
                self.plane.reachable = False
            case Do.FULL:
                self.journal.full = True

    async def _release(self) -> None:
        try:
            await self.keeper.release(ReleaseOrder(resident="b", actor="ann"))
        except OverrideError:
            return  # nothing is held, or no longer

    def state(self) -> dict[str, Any]:
        """What must not depend on who died when."""
        shown = {status.resident: status for status in self.keeper.status()}
        book = self.keeper._books["v1"]
        served: dict[str, tuple[Level, Level]] = {
            name: (self.plane.held.of(name), self.plane.held.of(name, SessionClass.BATCH))
            for name in ("a", "b")
        }
        return {
            "mode": self.keeper.mode,
            "served": served,
            "wanted": {name: (each.level, each.apart) for name, each in shown.items()},
            "rungs": {part.part: part.rung for part in shown["b"].parts},
            "moves left": {part.part: part.moves_left for part in shown["b"].parts},
            "dwells": {part: stair.dwell_s for part, stair in book.ladder.stairs.items()},
            "ratios": dict(book.ladder.stairs[Part.MEDIA].ratios),
            "for memory": book.ladder.limited_for_memory,
            "held": shown["b"].override,
            "peak": book.history.peak(self.clock(), LINES.ladder.memory_s),
        }


def answered(per_s: float) -> Tables:
    """So many requests a second of v1's, answered in 100 ms."""
    many = round(per_s * LINES.latency.window_s)
    row = LatencyRow(
        version="v1", milestone=Milestone.FIRST_TOKEN, count=many, over=0, requests=many,
        p50_s=0.1, p95_s=0.1, p99_s=0.1, over_share=0.0, slow_share=0.0,
    )  # fmt: skip
    return Tables(
        wall=0.0, windows=windows(LINES), lines=lines_shown(LINES), cache=(), cache_summary=(),
        latency=(row,), faults=(),
    )  # fmt: skip


async def ending(script: Sequence[Step], fatal: int | None = None) -> tuple[dict[str, Any], int]:
    """The state after the script, and how many points were passed."""
    world = World(Points(fatal))
    await world.run(script)
    state, points = world.state(), world.points.passed
    world.points.fatal = None
    world.lead()
    await world.tick(None)
    assert world.state() == state, "the journal tells all of it"
    return state, points


LATENCY, CACHE = Action.DEGRADE_MEDIA, Action.QUANTISE_KV
ALL_ACTIONS = (Action.SHED, LATENCY, CACHE, Action.LIMIT_ADMISSION)
SHORT = (
    Step(Do.NOTHING, ALL_ACTIONS),
    Step(Do.NOTHING),
    Step(Do.NOTHING, (LATENCY, CACHE), more=True),
    Step(Do.HOLD_BRIEFLY),
)
LONG = (
    Step(Do.NOTHING, (LATENCY, CACHE)),
    Step(Do.AWAY, (CACHE,)),
    Step(Do.FULL, (LATENCY,)),
    Step(Do.HOLD_BATCH, (CACHE,)),
    Step(Do.HOLD_BRIEFLY, ALL_ACTIONS, more=True),
    Step(Do.FREEZE),
    Step(Do.THAW, (Action.SHED,)),
    Step(Do.HOLD),
)


async def dies_everywhere(script: Sequence[Step]) -> dict[str, Any]:
    """How it ends, and that it does so wherever it dies."""
    wanted, points = await ending(script)
    for fatal in range(1, points + 1):
        found, _ = await ending(script, fatal)
        assert found == wanted, f"killed at point {fatal}"
    return wanted


async def test_wherever_it_dies_it_ends_the_same() -> None:
    ended = await dies_everywhere(SHORT)
    rungs, dwells, left = ended["rungs"], ended["dwells"], ended["moves left"]
    assert (rungs[Part.MEDIA], rungs[Part.KV]) == (2, 0)
    assert (dwells[Part.MEDIA], dwells[Part.KV], dwells[Part.SHED]) == (2.0, 2.0, 1.0), "relapses"
    assert (left[Part.MEDIA], left[Part.KV]) == (0, 2)
    assert ended["ratios"] == {1: pytest.approx(1.6), 2: pytest.approx(1.25)}
    assert ended["peak"] == HIGH


async def test_a_rung_waits_for_the_load_that_came_after_it_wherever_it_dies() -> None:
    ended = await dies_everywhere([Step(Do.NOTHING, (Action.SHED,), more=True), Step(Do.NOTHING)])
    assert (ended["rungs"][Part.SHED], ended["peak"]) == (1, HIGH)


@pytest.mark.slow
async def test_wherever_it_dies_in_a_long_story_it_ends_the_same() -> None:
    ended = await dies_everywhere(LONG)
    assert ended["rungs"][Part.ADMISSION] == 1
    assert ended["held"].parts == {Part.MEDIA: 2, Part.ADMISSION: 1}
    assert ended["dwells"][Part.KV] == 2.0


steps = st.builds(
    Step,
    do=st.sampled_from(Do),
    fires=st.lists(st.sampled_from(ALL_ACTIONS), unique=True, max_size=4).map(tuple),
    more=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(script=st.lists(steps, min_size=1, max_size=6), share=st.floats(0.0, 1.0))
async def test_whatever_happens_and_wherever_it_dies_it_ends_the_same(
    script: list[Step], share: float
) -> None:
    wanted, points = await ending(script)
    found, _ = await ending(script, 1 + int(share * max(points - 1, 0)))
    assert found == wanted
