"""How a drill recognises each step in what the parts of a stack tell."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from alerts.firing import NEWS, AlertNews, Firing, Source
from alerts.names import AlertName
from alerts.parts import Part
from alerts.policy import make
from monitors.contract import KvRung, Level, MediaRung, Observed, Shed
from monitors.labels import Action, Milestone
from monitors.latency_table import LatencyRow
from monitors.redlines import RedLines
from monitors.tables import Tables, Windows, lines_shown
from redline.control.api import JournalLine
from redline.control.ladder_events import MOVED
from redline.drills import signs
from redline.drills.standing import seen_instead
from redline.drills.watch import AlertmanagerAlert, PrometheusAlert, Sight
from tests.unit.redline.samples import resident, status

LINES = RedLines()
VERSION, OTHER = "tiny-omni-1", "tiny-omni-2"
ALERT = AlertName.LATENCY_DEGRADE
LABELS = {"alertname": ALERT.value, "version": VERSION}
NOTHING = Sight(
    wall=100.0, tables=None, observed=None, control=None, journal=(), prometheus=None,
    alertmanager=None,
)  # fmt: skip


def tables(version: str = VERSION, *, over: float, requests: int) -> Tables:
    row = LatencyRow(
        version=version, milestone=Milestone.FIRST_TOKEN, count=requests, over=0,
        requests=requests, p50_s=0.1, p95_s=0.1, p99_s=0.1, over_share=over, slow_share=over,
    )  # fmt: skip
    windows = Windows(cache_s=30.0, latency_s=30.0, fault_requests=10)
    return Tables(
        wall=99.0, windows=windows, lines=lines_shown(LINES), cache=(), cache_summary=(),
        latency=(row,), faults=(),
    )  # fmt: skip


def journal(kind: str, body: Any, at: int = 1) -> JournalLine:
    told = msgspec.to_builtins(body)
    return JournalLine(
        id=at, wall=float(at), leader_epoch=1, actor="x", kind=kind, story="told", body=told
    )


def news(**more: Any) -> AlertNews:
    given: dict[str, Any] = {
        "alert": ALERT.value, "version": VERSION, "labels": LABELS, "state": "firing",
        "source": Source.PROMETHEUS, "starts_at": 50.0, "heard_at": 51.5,
    }  # fmt: skip
    return AlertNews(**{**given, **more})


def move(part: Part, rung: int, version: str = VERSION) -> dict[str, Any]:
    return {"at": 1.0, "version": version, "part": part, "rung": rung, "reason": "r"}


def observed(level: Level) -> Observed:
    return Observed(
        incarnation="i", leader_epoch=1, route_epoch=1, stable="b", canary=None, canary_weight=0,
        lease_left_s=0.0, residents=(resident("b", VERSION, level=level),),
    )  # fmt: skip


RULE = make(LINES).rule(ALERT)
assert RULE is not None


@pytest.mark.parametrize(
    ("seen", "crossed"),
    [
        (tables(over=0.02, requests=100), True),
        (tables(over=0.01, requests=100), False),
        (tables(over=0.50, requests=99), False),
        (tables(OTHER, over=0.50, requests=100), False),
        (None, False),
    ],
)
def test_a_breach_is_what_the_rule_says_of_this_version(seen: Tables | None, crossed: bool) -> None:
    mark = signs.breach(RULE, VERSION)(replace(NOTHING, tables=seen))
    assert (mark is not None) == crossed
    if mark is not None:
        assert (mark.at, mark.source) == (99.0, "/tables")
        assert mark.seen == "2% of 100 requests past 400 ms to first_token"


def test_times_of_alerts_are_prometheus_and_alertmanagers_own() -> None:
    active, starts = (datetime.fromtimestamp(at, UTC) for at in (42.0, 43.0))
    sight = replace(
        NOTHING,
        prometheus=(PrometheusAlert(labels=LABELS, state="firing", active_at=active),),
        alertmanager=(AlertmanagerAlert(labels=LABELS, starts_at=starts),),
    )
    pending, firing = signs.pending(ALERT, VERSION)(sight), signs.firing(ALERT, VERSION)(sight)
    assert pending is not None
    assert firing is not None
    assert (pending.at, firing.at) == (42.0, 43.0)
    assert signs.pending(ALERT, OTHER)(sight) is None


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (news(), 51.5),
        (news(source=Source.EMBEDDED), 51.5),
        (news(state="pending"), None),
        (news(state="resolved"), None),
        (news(version=OTHER), None),
        (news(alert=AlertName.FAULT_RATE.value), None),
    ],
)
def test_what_was_heard_is_the_journals_news_that_it_fires(
    body: AlertNews, at: float | None
) -> None:
    mark = signs.heard(ALERT, VERSION)(replace(NOTHING, journal=(journal(NEWS, body),)))
    assert (None if mark is None else mark.at) == at


def test_a_move_is_of_this_part_and_version_and_has_the_journals_time() -> None:
    lines = (
        journal(MOVED, move(Part.KV, 1), 1),
        journal(MOVED, move(Part.MEDIA, 1, OTHER), 2),
        journal(MOVED, move(Part.MEDIA, 1), 3),
        journal(MOVED, move(Part.MEDIA, 0), 4),
    )
    sight = replace(NOTHING, journal=lines)
    lowered, eased = (
        signs.lowered(Part.MEDIA, VERSION)(sight),
        signs.eased(Part.MEDIA, VERSION)(sight),
    )
    assert lowered is not None
    assert eased is not None
    assert (lowered.at, eased.at) == (3.0, 4.0)
    assert [rung for _, rung in signs.moves(sight, Part.MEDIA, VERSION)] == [1, 0]
    back = replace(NOTHING, journal=lines[-1:])
    assert signs.lowered(Part.MEDIA, VERSION)(back) is None
    assert signs.eased(Part.MEDIA, VERSION)(replace(NOTHING, journal=lines[:-1])) is None


def test_a_level_is_what_the_data_plane_holds_of_that_part() -> None:
    lower = replace(NOTHING, observed=observed(Level(media=MediaRung.P360_8K)))
    assert signs.held(Part.MEDIA, VERSION)(lower) is not None
    assert signs.held(Part.KV, VERSION)(lower) is None
    assert signs.held(Part.KV, VERSION)(replace(NOTHING, observed=observed(Level(kv=KvRung.INT8))))


@pytest.mark.parametrize("part", list(Part))
def test_a_data_plane_that_does_not_answer_is_at_no_level(part: Part) -> None:
    assert signs.held(part, VERSION)(NOTHING) is None
    assert signs.restored(resident("b", VERSION))(NOTHING) is None


@pytest.mark.parametrize(
    ("was", "now", "restored"),
    [
        (Level(), Level(), True),
        (Level(), Level(kv=KvRung.INT8), False),
        (Level(), Level(shed=Shed.ON), False),
        (Level(shed=Shed.ON), Level(shed=Shed.ON), True),
        (Level(shed=Shed.ON), Level(), True),
        (Level(shed=Shed.ON), Level(media=MediaRung.P360_8K), False),
    ],
)
def test_all_is_as_it_was_once_no_part_is_lower(was: Level, now: Level, restored: bool) -> None:
    sign = signs.restored(resident("b", VERSION, level=was))
    assert (sign(replace(NOTHING, observed=observed(now))) is not None) is restored


def test_silence_is_not_the_end_of_an_alert() -> None:
    fires = Firing(
        alert=ALERT.value,
        action=Action.DEGRADE_MEDIA,
        version=VERSION,
        labels=LABELS,
        starts_at=1.0,
    )
    resolved = signs.resolved(ALERT, VERSION)
    assert resolved(NOTHING) is None, "nobody answers"
    assert resolved(replace(NOTHING, control=status(firing=None))) is None, "nobody can tell"
    assert resolved(replace(NOTHING, control=status(firing=(fires,)))) is None
    quiet = replace(NOTHING, control=status(firing=()))
    assert resolved(quiet) is not None
    still = AlertmanagerAlert(labels=LABELS, starts_at=datetime.fromtimestamp(1.0, UTC))
    assert resolved(replace(quiet, alertmanager=(still,))) is None
    pending = PrometheusAlert(
        labels=LABELS, state="pending", active_at=datetime.fromtimestamp(1.0, UTC)
    )
    assert resolved(replace(quiet, prometheus=(pending,))) is None


def test_only_a_later_epoch_is_a_new_leader() -> None:
    sight = replace(NOTHING, control=status(leader_epoch=3))
    assert signs.leads(newer_than=3)(sight) is None
    assert signs.leads(newer_than=2)(sight) is not None
    assert signs.leads(newer_than=2)(replace(NOTHING, control=status(leader_epoch=None))) is None


def test_how_things_stand_names_who_decides_and_who_serves() -> None:
    told = seen_instead(replace(NOTHING, control=status(), observed=observed(Level())))
    assert told[0] == "the ladder is live, the rules are evaluated by prometheus"
    assert "fires: nothing" in told
    assert f"{VERSION}: ready, 100 % of new sessions, level full" in told
    assert seen_instead(NOTHING) == (
        "the control plane does not answer", "the data plane does not answer",
    )  # fmt: skip
