"""What a control plane may say of itself, for those who show it."""

from typing import Any

import msgspec

from alerts.ladder import Mode
from monitors.contract import Admission, KvRung, Level, MediaRung, Observed, ResidentStatus
from monitors.labels import Phase, ResidentState
from monitors.redlines import RedLines
from redline.control.api import ControlStatus, JournalLine, level_words
from redline.settings import Stack
from rollout.plan import make_plan
from rollout.sequential import Numbers, Verdict
from rollout.status import RolloutStatus
from tests.support.http_server import Answer, Server

LINES = RedLines()
PLAN = make_plan(LINES, stable="b", canary="a", version="tiny-omni-2")
NUMBERS = tuple(
    Numbers(
        line=line.name, verdict=Verdict.INCONCLUSIVE, limit=line.limit, e=1.2345e-4,
        threshold=6_000.0, pass_e=1.0, pass_threshold=20.0, n=1234, events=123.4567, bad_sessions=3,
        to_breach=0.0, to_pass=0.3999,
    )
    for line in PLAN.lines
)  # fmt: skip


def resident(name: str, version: str, **more: Any) -> ResidentStatus:
    given = {"state": ResidentState.READY, "weight": 100, "level": Level(), "min_pool_epoch": 0}
    return ResidentStatus(name=name, version=version, **{**given, **more})


def rollout(**more: Any) -> RolloutStatus:
    given: dict[str, Any] = {
        "phase": Phase.CANARY, "phase_s": 61.0, "frozen": False, "reasons": ("A is [warm]",),
        "plan": PLAN, "weight": 5, "promoted": False, "route_epoch": 2,
        "verdict": Verdict.INCONCLUSIVE,
        "canary": NUMBERS, "stable": (), "requests_per_s": None, "detectable": None,
        "evidence_age_s": None, "rollback": None, "rollback_incomplete": False, "quarantined": (),
        "unjournalled": 0, "deposed": False,
    }  # fmt: skip
    return RolloutStatus(**{**given, **more})


def status(**more: Any) -> ControlStatus:
    worst = Level(media=MediaRung.P160_8K, kv=KvRung.INT8, admission=Admission.LIMITED)
    residents = (
        resident("b", "tiny-omni-1", level=worst, weight=95, pool_epoch=12, in_flight=10),
        resident("a", "tiny-omni-2", state=ResidentState.DEAD, weight=5, detail="exit [3]"),
    )
    given: dict[str, Any] = {
        "wall": 0.0, "pid": 1, "leader_epoch": 3, "rule_source": "prometheus",
        "ladder_mode": Mode.LIVE, "watchdog_age_s": 1.0, "firing": (), "pending": (),
        "watched": True,
        "data_plane": Observed(
            incarnation="i", leader_epoch=3, route_epoch=2, stable="b", canary="a",
            canary_weight=5, lease_left_s=9.0, residents=residents,
        ),
        "rollout": rollout(),
        "levels": {each.name: level_words(each) for each in residents},
    }  # fmt: skip
    return ControlStatus(**{**given, **more})


def line(story: str | None) -> JournalLine:
    """One journal entry, told or not."""
    return JournalLine(
        id=1, wall=1_800_000_000.5, leader_epoch=1, actor="ann", kind="rollout.state", story=story,
        body={"a": 1},
    )  # fmt: skip


def serve(server: Server, path: str, body: msgspec.Struct | list[Any]) -> Stack:
    """The stack of which one server answers everything, from now on also this."""
    server.answers[path] = Answer(msgspec.json.encode(body))
    return Stack(runtime_url=server.url, control_url=server.url, token="t")
