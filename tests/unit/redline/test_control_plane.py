"""The control plane of one process: how it takes, keeps and loses office, and what alerts start."""

import asyncio
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from alerts.ladder import Move, Part
from alerts.names import AlertName
from monitors.contract import DrainOrder, DrainReport, Route
from monitors.journal import Journal, JournalUnwritable, LeaderLease
from monitors.labels import Phase
from monitors.redlines import RedLines
from rollout.plan import make_plan
from rollout.state import RolloutState
from rollout.store import STATE_KIND, SavedState
from tests.support.http_server import recording_server
from tests.support.office import TTL_S, Office, in_office, until
from tests.support.sim_dataplane import SimDataPlane
from tests.support.webhook import webhook


@pytest.fixture
def dataplane() -> SimDataPlane:
    return SimDataPlane(time.monotonic)  # pyright: ignore[reportArgumentType]


def take_over(folder: Path) -> None:
    """What another process does once the holder has been silent for too long."""
    with closing(sqlite3.connect(folder / "journal.db", timeout=5.0)) as db, db:
        db.execute("UPDATE lease SET epoch = epoch + 1, holder = 'another'")


# ---------------------------------------------------------------- the lease
async def test_a_lost_lease_ends_all_work_at_once(tmp_path: Path, dataplane: SimDataPlane) -> None:
    office = Office(tmp_path, dataplane)
    async with in_office(office) as running:
        take_over(tmp_path)
        await asyncio.wait_for(running, 10)
        assert office.deposed
        assert office.plane.controller is office.plane.keeper is office.plane.leader_epoch is None


async def test_the_lease_is_kept_while_a_resumed_rollback_takes_its_time(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    draining, go_on = asyncio.Event(), asyncio.Event()
    drain = dataplane.drain

    async def long_drain(resident: str, order: DrainOrder) -> DrainReport:
        draining.set()
        await go_on.wait()
        return await drain(resident, order)

    dataplane.drain = long_drain
    first = Office(tmp_path, dataplane)
    async with in_office(first):
        plan, _ = await first.controller.propose()
        await first.controller.start(plan, "ann")
        await until(lambda: first.controller.status().weight)
        rollback = asyncio.create_task(first.controller.rollback("ann", "for a test"))
        await draining.wait()
        rollback.cancel()
    draining.clear()
    second = Office(tmp_path, dataplane)
    async with in_office(second) as running:
        await draining.wait()
        with closing(LeaderLease(tmp_path / "journal.db", "another", TTL_S)) as rival:
            for _ in range(6):
                assert await asyncio.to_thread(rival.acquire) is None
                await asyncio.sleep(TTL_S / 4)
        assert not running.done()
        go_on.set()
        await until(lambda: second.controller.status().phase is Phase.QUARANTINED)


async def test_a_full_disk_takes_no_leader_out_of_office_until_another_leads(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    office = Office(tmp_path, dataplane)
    async with in_office(office) as running:
        assert "redline_control_journal_writable 1.0" in office.metrics()

        def full() -> bool:
            raise JournalUnwritable("the disk is full")

        office.plane._lease.renew = full
        await asyncio.sleep(1.5 * TTL_S)
        assert not running.done()
        assert "redline_control_journal_writable 0.0" in office.metrics()
        take_over(tmp_path)
        await asyncio.wait_for(running, 10)
        assert office.deposed


async def test_a_disk_that_does_not_answer_for_the_length_of_the_lease_loses_it(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    office, answer = Office(tmp_path, dataplane), threading.Event()
    office.plane._lease.renew = lambda: answer.wait(60)
    try:
        async with in_office(office) as running:
            await asyncio.wait_for(running, 20 * TTL_S)
            assert office.deposed
    finally:
        answer.set()


async def test_a_plane_that_breaks_ends_its_process(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    dataplane.observe = broken  # pyright: ignore[reportAttributeAccessIssue]
    office = Office(tmp_path, dataplane)
    async with in_office(office) as running:
        await asyncio.wait({running}, timeout=10)
        assert office.deposed
        assert office.plane.controller is None


async def test_a_journal_that_was_lost_does_not_keep_the_next_leader_out(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    dataplane.leader_epoch = 41
    office = Office(tmp_path, dataplane)
    async with in_office(office) as running:
        assert office.plane.leader_epoch == 42
        await asyncio.sleep(0.2)  # some ticks, the first of which would find a newer leader
        assert not running.done()
        assert not office.deposed


async def test_two_hosts_with_one_port_are_two_holders(
    tmp_path: Path, dataplane: SimDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers that share a volume each has port 8090."""
    office = Office(tmp_path, dataplane)
    monkeypatch.setattr("socket.gethostname", lambda: "another-host")
    rival = Office(tmp_path, dataplane)
    async with in_office(office) as running:
        waiting = asyncio.create_task(rival.plane.run())
        await asyncio.sleep(0.5)  # one that has the same name takes over at once
        assert rival.plane.controller is None
        assert "redline_rollback_incomplete " not in rival.metrics()
        assert not running.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await rival.plane.close()


async def test_the_token_is_shown_to_no_proxy(
    tmp_path: Path, dataplane: SimDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_server() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        office = Office(tmp_path, dataplane)
        async with in_office(office):
            await until(lambda: office.plane.book.heartbeat_age(0.0) is None)
            await asyncio.sleep(0.1)  # some ticks, each of which reads the tables
        assert proxy.seen == []


# ---------------------------------------------------------------- what is shown
async def test_a_new_leader_shows_the_phase_it_found_and_counts_no_rollback_twice(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    first = Office(tmp_path, dataplane)
    async with in_office(first):
        await serving(first)
        assert "redline_rollbacks_total 0.0" in first.metrics(), "no rate would see the first one"
        await first.controller.rollback("ann", "for a test")
        assert "redline_rollbacks_total 1.0" in first.metrics()
    second = Office(tmp_path, dataplane)
    async with in_office(second):
        shown = second.metrics()
        assert 'redline_rollout_phase{phase="quarantined"} 1.0' in shown
        assert "redline_rollback_incomplete 0.0" in shown
        assert "redline_rollbacks_total 0.0" in shown


async def test_the_moves_of_a_fifth_version_are_counted_and_end_no_control_plane(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    office = Office(tmp_path, dataplane)
    for rung, version in enumerate(("v1", "v2", "v3", "v4", "v2", "v5")):
        office.plane._moved(Move(at=0.0, version=version, part=Part.KV, rung=rung, reason=""))
    shown = re.findall(r'transitions_total{part="kv",version="(v.)"} (\S+)', office.metrics())
    assert shown == [("v2", "2.0"), ("v3", "1.0"), ("v4", "1.0"), ("v5", "1.0")]
    await office.plane.close()


async def test_a_way_back_that_cannot_serve_is_shown_where_everybody_is_on_a(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    name = "redline_rollout_way_back_ready"
    office = Office(tmp_path, dataplane)
    async with in_office(office):
        await serving(office)
        assert f"\n{name} " not in office.metrics(), "B serves: a resident that is down is missed"
        by_hand = Route(
            leader_epoch=office.plane.leader_epoch or 0,
            route_epoch=99, stable="a", canary="b", canary_weight=0, lease_s=10.0,
        )  # fmt: skip
        await dataplane.set_route(by_hand)
        await until(lambda: f"\n{name} 1.0" in office.metrics())
        dataplane.kill("b")
        await until(lambda: f"\n{name} 0.0" in office.metrics())
        dataplane.revive("b")
        await until(lambda: f"\n{name} 1.0" in office.metrics())


# ---------------------------------------------------------------- rollback by alert
async def serving(office: Office) -> None:
    """A rollout whose A has traffic."""
    plan, _ = await office.controller.propose()
    await office.controller.start(plan, "ann")
    await until(lambda: office.controller.status().weight)


def fires(office: Office, version: str) -> None:
    for name in (AlertName.WATCHDOG, AlertName.FAULT_RATE):
        office.plane.receive(webhook(name, version))


@pytest.mark.parametrize("frozen", [False, True])
async def test_the_fault_alert_rolls_a_serving_canary_back_frozen_or_not(
    tmp_path: Path, dataplane: SimDataPlane, frozen: bool
) -> None:
    office = Office(tmp_path, dataplane)
    async with in_office(office):
        await serving(office)
        if frozen:
            await office.controller.freeze("ann")
        fires(office, "v2")
        await until(lambda: office.controller.status().quarantined)
        rollback = office.controller.status().rollback
        assert rollback is not None
        assert rollback.order.actor == AlertName.FAULT_RATE
        assert dataplane.canary_weight == 0


@pytest.mark.parametrize("frozen", [False, True])
async def test_the_fault_alert_of_a_version_that_has_become_stable_rolls_nothing_back(
    tmp_path: Path, dataplane: SimDataPlane, frozen: bool
) -> None:
    """It is no canary any more, and a freeze, which hides that, must not make it one."""
    journal = Journal(tmp_path / "journal.db")
    plan = make_plan(RedLines(), stable="b", canary="a", version="v2")
    ended = RolloutState(phase=Phase.STABLE, plan=plan, promoted=True, frozen=frozen)
    journal.append(STATE_KIND, "rollout", SavedState(state=ended, phase_s=0.0), 0)
    journal.close()
    office = Office(tmp_path, dataplane)
    async with in_office(office):
        fires(office, "v2")
        await until(lambda: office.plane.watch and office.plane.watch.firing)
        await asyncio.sleep(0.1)
        assert office.controller.status().rollback is None
        assert office.controller.status().quarantined == ()


@pytest.mark.parametrize("version", ["v1", "v9"])
async def test_the_fault_alert_of_any_other_version_rolls_nothing_back(
    tmp_path: Path, dataplane: SimDataPlane, version: str
) -> None:
    office = Office(tmp_path, dataplane)
    async with in_office(office):
        await serving(office)
        fires(office, version)
        await until(lambda: office.plane.watch and office.plane.watch.firing)
        await asyncio.sleep(0.1)
        assert office.controller.status().rollback is None
        assert office.controller.status().weight


async def test_the_fault_alert_of_a_version_that_is_at_rest_rolls_nothing_back(
    tmp_path: Path, dataplane: SimDataPlane
) -> None:
    office = Office(tmp_path, dataplane)
    async with in_office(office):
        fires(office, "v2")
        await until(lambda: office.plane.watch and office.plane.watch.firing)
        await asyncio.sleep(0.1)
        assert office.controller.status().phase is Phase.IDLE
