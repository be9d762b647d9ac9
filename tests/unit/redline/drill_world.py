"""A stack that answers drills as its runbooks say, in a time of its own, unless it is made not to.

Nothing sleeps: while a drill waits, what is due happens.
"""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from alerts.firing import NEWS, AlertNews, Firing, Source
from alerts.names import AlertName
from alerts.parts import Part
from alerts.policy import make
from monitors.cache_table import CacheSummary
from monitors.contract import DrillKind, DrillReport, KvRung, Level, MediaRung, Observed
from monitors.labels import Action
from monitors.redlines import RedLines
from redline import inject
from redline.client import ClientError
from redline.control.api import ControlStatus, JournalLine
from redline.control.ladder_api import LadderStatus, PartStatus
from redline.control.ladder_events import MOVED
from redline.drills import control_down, fault, machinery, stage
from redline.drills.signs import rung
from redline.drills.stage import Stage, Teller
from redline.drills.traffic import Kind, Probe, Served
from redline.drills.watch import Sight
from redline.processes import ProcessMark
from redline.settings import Stack
from tests.support.records import a_leg, a_record
from tests.unit.redline.samples import resident, status
from tests.unit.redline.test_drill_signs import NOTHING, move, tables

VERSION = "tiny-omni-1"
LINES = RedLines()
QUIET_S, DWELL_S, RESTART_S = 25.0, LINES.ladder.dwell_s, 3.0
PAGES_GB = 30.0


class World:
    """The clock, the stack and the traffic of a drill. Tests change what they want to go wrong."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.level = Level()
        self.canary_weight, self.weight = 0, 100
        self.pid: int | None = 77
        self.pool_epoch = 3
        self.epoch, self.control_up = 1, True
        self.source = Source.PROMETHEUS
        self.journal: list[JournalLine] = []
        self.alert: AlertName | None = None
        self.crossed: DrillKind | None = None
        self.ease_at = 0.0
        self.dwell_s = DWELL_S
        self.silent_s = LINES.alerts.heartbeat_silence_s
        self.heard_s = 5.0
        self.served_while_down = True
        self.leaves_s = 0.0  # how long traffic takes to end
        self.sent: list[Kind | None] = []
        self.tells, self.shrinks, self.is_native_again = True, True, True
        self.int8_share = 0.5  # of its native bytes
        self.answered, self.newest = 0, None
        self.failures: list[tuple[float, str]] = []
        self._sending = False
        self._due: list[tuple[float, Callable[[], None]]] = []

    # ------------------------------------------------------------ time
    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and min(self._due, key=lambda one: one[0])[0] <= until:
            first = min(self._due, key=lambda one: one[0])
            self._due.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = until
        if self._sending:
            self.serve()

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, happens))

    # ------------------------------------------------------------ what the stack does
    def write(self, kind: str, body: Any) -> None:
        told = msgspec.to_builtins(body)
        self.journal.append(
            JournalLine(
                id=len(self.journal) + 1, wall=self.now, leader_epoch=self.epoch, actor="x",
                kind=kind, story=kind, body=told,
            )
        )  # fmt: skip

    def cross(self, kind: DrillKind) -> None:
        self.crossed = kind
        self.later(0.5, lambda: self.fire(kind))

    def fire(self, kind: DrillKind) -> None:
        slow = kind is DrillKind.SLOW
        self.alert = AlertName.LATENCY_DEGRADE if slow else AlertName.CACHE_BELOW_FLOOR
        part = Part.MEDIA if slow else Part.KV
        self.write(NEWS, AlertNews(
            alert=self.alert, version=VERSION, labels={}, state="firing", source=self.source,
            starts_at=self.now, heard_at=self.now,
        ))  # fmt: skip
        self.lower(part)
        lower = {"media": MediaRung.P360_8K} if slow else {"kv": KvRung.INT8}
        self.later(0.3, lambda: self.hold(**lower))

    def lower(self, part: Part) -> None:
        self.write(MOVED, move(part, 1))

    def quieten(self) -> None:
        self.alert = self.crossed = None

    def ease(self) -> None:
        part = Part.KV if self.level.kv else Part.MEDIA
        self.write(MOVED, move(part, 0))
        self.hold(media=MediaRung.FULL, kv=KvRung.NATIVE)

    def hold(self, **parts: Any) -> None:
        self.level = msgspec.structs.replace(self.level, **parts)

    def mend(self) -> None:
        self.ease_at = self.now + QUIET_S + self.dwell_s
        self.later(QUIET_S, self.quieten)
        self.later(QUIET_S + self.dwell_s, self.ease)

    def start_control(self) -> None:
        self.control_up, self.epoch = True, self.epoch + 1

    # ------------------------------------------------------------ what is done to it
    def inject(
        self, _: Stack, kind: DrillKind, name: str, seconds: float, __: float | None
    ) -> DrillReport:
        if seconds:
            self.later(1.0, lambda: self.cross(kind))
        else:
            self.mend()
        return DrillReport(resident=name, kind=kind, running=seconds > 0, detail="as told")

    def kill(self, _: ProcessMark, __: signal.Signals) -> None:
        self.control_up = False
        self.later(RESTART_S, self.start_control)

    def stop(self, process: ProcessMark, _: signal.Signals) -> None:
        if process == MARKS["control plane"]:
            self.control_up = False
        else:
            self.later(self.silent_s, lambda: setattr(self, "source", Source.EMBEDDED))

    def let_go_on(self, process: ProcessMark) -> None:
        if process == MARKS["control plane"]:
            self.control_up = True
        else:
            self.later(self.heard_s, lambda: setattr(self, "source", Source.PROMETHEUS))

    # ------------------------------------------------------------ what it tells
    def observed(self) -> Observed:
        stable = resident(
            "b", VERSION, level=self.level, weight=self.weight, pid=self.pid,
            pool_epoch=self.pool_epoch,
        )  # fmt: skip
        return Observed(
            incarnation="i", leader_epoch=self.epoch, route_epoch=1, stable="b", canary=None,
            canary_weight=self.canary_weight, lease_left_s=0.0, residents=(stable,),
        )  # fmt: skip

    def control(self) -> ControlStatus:
        firing = () if self.alert is None else (Firing(
            alert=self.alert, action=Action.NONE, version=VERSION, labels={}, starts_at=1.0,
        ),)  # fmt: skip
        return status(
            wall=self.now, leader_epoch=self.epoch, rule_source=self.source, firing=firing,
            ladders=(self._ladder(),),
        )  # fmt: skip

    def _ladder(self) -> LadderStatus:
        left_s = max(0.0, min(self.dwell_s, self.ease_at - self.now))
        parts = tuple(
            PartStatus(
                part=part, rung=rung(self.level, part), word="", since=None, why="", evidence="",
                dwell_left_s=left_s, forecast="", holds=(), moves_left=1,
            )
            for part in Part
        )  # fmt: skip
        return LadderStatus(
            resident="b", version=VERSION, level=self.level, apart={}, parts=parts, override=None
        )

    def ask(self, _: Stack, __: str, url: str, *___: Any) -> Any:
        if url.endswith("/control"):
            return self.observed()
        if not self.control_up:
            raise ClientError(f"{url} does not answer")
        return self.control()

    def sight(self) -> Sight:
        seen = tables(over=0.5 if self.crossed is DrillKind.SLOW else 0.0, requests=100)
        short = self.crossed is DrillKind.PRESSURE
        cache = CacheSummary(
            version=VERSION, hit_rate=0.5 if short else 0.95,
            gpu_mem_gb=PAGES_GB * (self.int8_share if self.level.kv else 1.0),
        )  # fmt: skip
        return replace(
            NOTHING,
            wall=self.now,
            tables=msgspec.structs.replace(seen, wall=self.now, cache_summary=(cache,)),
            observed=self.observed(),
            control=self.control() if self.control_up else None,
            journal=tuple(self.journal),
        )

    # ------------------------------------------------------------ requests
    @contextmanager
    def going_on(self, kind: Kind | None) -> Generator[None]:
        before, self._sending = self._sending, self._sending or kind is not None
        self.sent.append(kind)
        if kind is not None:
            self.later(0.2, self.serve)
        try:
            yield
        finally:
            self._sending = before
            self.sleep(0.0 if kind is None else self.leaves_s)

    def serve(self) -> None:
        if self.control_up or self.served_while_down:
            self.answered += 1
            self.newest = Served(self.now - 0.1, self.now)

    def probe(self) -> Probe:
        lower = self.level.media > 0
        usage = a_record().usage
        assert usage is not None
        usage = msgspec.structs.replace(usage, prompt_tokens=139 if lower and self.shrinks else 161)
        kv = self.level.kv if self.is_native_again else KvRung.INT8
        record = a_record(usage=usage, legs=(a_leg(kv=kv),))
        return Probe(self.now, "media=360p+8k" if lower and self.tells else "full", record)


MARKS = {
    name: ProcessMark(pid=pid, started=1)
    for pid, name in enumerate(("control plane", "Prometheus", "Alertmanager"), start=100)
}


def stage_in(world: World, monkeypatch: pytest.MonkeyPatch, *, own_traffic: bool = True) -> Stage:
    """A stage on which this world plays."""
    for module in (stage, control_down, fault):
        monkeypatch.setattr(module, "time", world)
    monkeypatch.setattr(stage, "ask", world.ask)
    monkeypatch.setattr(inject, "start", world.inject)
    monkeypatch.setattr(control_down, "send", world.kill)
    monkeypatch.setattr(machinery, "send", world.stop)
    monkeypatch.setattr(machinery, "let_go_on", world.let_go_on)
    parts: Any = world  # it is watch and traffic, too
    return Stage(
        stack=Stack(runtime_url="http://r", control_url="http://c", token="t", processes=MARKS),
        policy=make(LINES),
        watch=parts,
        traffic=parts,
        teller=Teller(tell=lambda _: None, wait_for=lambda _: None, confirm=lambda _: False),
        own_traffic=own_traffic,
    )
