"""Looks of the embedded evaluator, once a second, and the tables that it is shown."""

from typing import Any

from alerts.evaluator import Evaluation, Evaluator
from alerts.firing import Firing
from alerts.policy import make
from monitors.cache_table import CacheSummary
from monitors.contract import Level, Observed, ResidentStatus
from monitors.fault_table import FaultRow
from monitors.labels import Fault, Milestone, ResidentState
from monitors.latency_table import LatencyRow
from monitors.redlines import FaultLines, LatencyLines, RedLines
from monitors.tables import Tables, lines_shown, windows

LINES = RedLines(latency=LatencyLines(min_count=20), faults=FaultLines(min_count=20))
WALL = 1_800_000_000.0


def resident(name: str, state: ResidentState, weight: int, version: str = "") -> ResidentStatus:
    return ResidentStatus(
        name=name, version=version or f"of-{name}", state=state, weight=weight, level=Level(),
        min_pool_epoch=1,
    )  # fmt: skip


def observed(*residents: ResidentStatus) -> Observed:
    return Observed(
        incarnation="g", leader_epoch=1, route_epoch=1, stable="b", canary="a", canary_weight=0,
        lease_left_s=0.0, residents=residents,
    )  # fmt: skip


SERVED = observed(resident("b", ResidentState.READY, 0))


def cache(hit_rate: float | None = 0.8, gpu_mem_gb: float | None = 26.0) -> CacheSummary:
    return CacheSummary(version="v1", hit_rate=hit_rate, gpu_mem_gb=gpu_mem_gb)


def latency(
    requests: int, overdue: int, milestone: Milestone = Milestone.FIRST_TOKEN
) -> LatencyRow:
    return LatencyRow(
        version="v1",
        milestone=milestone,
        count=10 * requests,
        p50_s=None,
        p95_s=None,
        p99_s=None,
        over=5 * requests,
        requests=requests,
        over_share=overdue / requests if requests else None,
        slow_share=None,
    )


def faults(
    requests: int,
    faulted: int,
    fault: Fault | None = None,
    finished: int = 0,
    answered: int | None = None,
) -> FaultRow:
    rate = faulted / requests if requests else None
    return FaultRow(
        version="v1",
        fault=fault,
        finished=finished or requests,
        answered=finished or requests if answered is None else answered,
        requests=requests,
        faulted=faulted,
        rate=rate,
        rate_low=None,
        rate_high=None,
        soft=0,
        input_only=0,
    )


def tables(**rows: Any) -> Tables:
    empty: dict[str, Any] = {"cache": (), "cache_summary": (), "latency": (), "faults": ()}
    return Tables(wall=WALL, windows=windows(LINES), lines=lines_shown(LINES), **{**empty, **rows})


class Clock:
    """Ticks an evaluator once a second."""

    def __init__(self, lines: RedLines = LINES) -> None:
        self.evaluator = Evaluator(make(lines))
        self.now = 0.0

    def look(self, seen: Tables | None, observed: Observed | None = SERVED) -> Evaluation:
        evaluation = self.evaluator.tick(seen, observed, self.now, WALL + self.now)
        self.now += 1.0
        return evaluation

    def tick(self, seen: Tables | None) -> tuple[Firing, ...]:
        return self.look(seen).firing

    def names(self, seen: Tables | None, observed: Observed | None = SERVED) -> set[str]:
        return {each.alert for each in self.look(seen, observed).firing}
