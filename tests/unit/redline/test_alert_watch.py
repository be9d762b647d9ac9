"""The watch over alerts: who decides, what is journalled of it, and when it looks again."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from alerts.firing import NEWS, SOURCE, AlertNews, Source, SourceChanged
from alerts.names import AlertName
from monitors.cache_table import CacheSummary
from monitors.journal import JournalUnwritable, LeaderLease
from monitors.tables import Tables
from tests.unit.redline.ladder_world import LINES, World, hung

LATENCY, CACHE = AlertName.LATENCY_DEGRADE, AlertName.CACHE_BELOW_FLOOR


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with closing(made.journal):
        yield made


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[World]:
    """Without Prometheus."""
    made = World(tmp_path, prometheus=False)
    with closing(made.journal):
        yield made


def missing() -> Tables:
    """Tables in which v1 misses its cache and holds much memory."""
    held = CacheSummary(version="v1", hit_rate=0.5, gpu_mem_gb=90.0)
    return msgspec.structs.replace(hung(0), cache_summary=(held,))


def told(world: World) -> list[tuple[str, str, Source]]:
    entries = [entry.read_as(AlertNews) for entry in world.journal.read(kinds=[NEWS])]
    return [(news.alert, news.state, news.source) for news in entries]


# ---------------------------------------------------------------- news in the journal
async def test_what_prometheus_fires_and_resolves_is_journalled_once_each(world: World) -> None:
    await world.seconds(10, LATENCY)
    world.hear(LATENCY, status="resolved")
    await world.seconds(2)
    await world.watch.tell()
    assert told(world) == [
        (LATENCY, "firing", Source.PROMETHEUS),
        (LATENCY, "resolved", Source.PROMETHEUS),
    ]
    (entry, _) = world.journal.read(kinds=[NEWS])
    news = entry.read_as(AlertNews)
    assert (news.version, news.labels["action"]) == ("v1", "degrade_media")
    assert news.heard_at == 1_000.0


async def test_the_way_of_an_alert_that_is_found_here_is_journalled(alone: World) -> None:
    alone.tables = missing()
    await alone.seconds(LINES.cache.hold_s + 1)
    alone.tables = hung(0)
    await alone.seconds(1)
    await alone.watch.tell()
    assert told(alone) == [
        (CACHE, "pending", Source.EMBEDDED),
        (CACHE, "firing", Source.EMBEDDED),
        (CACHE, "resolved", Source.EMBEDDED),
    ]


async def test_each_change_of_who_evaluates_is_journalled(world: World) -> None:
    await world.seconds(3)
    world.clock.advance(LINES.alerts.heartbeat_silence_s + 1)
    await world.rounds.once()
    await world.seconds(1)
    await world.watch.tell()
    changes = [entry.read_as(SourceChanged) for entry in world.journal.read(kinds=[SOURCE])]
    assert [each.source for each in changes] == [
        Source.PROMETHEUS, Source.EMBEDDED, Source.PROMETHEUS,
    ]  # fmt: skip


async def test_a_full_disk_keeps_the_news_and_no_action_waiting(alone: World) -> None:
    alone.journal.full = True
    alone.tables = hung(20)
    assert [each.alert for each in await alone.rounds.once() or ()] == [LATENCY]
    with pytest.raises(JournalUnwritable):
        await alone.watch.tell()
    alone.journal.full = False
    await alone.watch.tell()
    assert told(alone) == [(LATENCY, "firing", Source.EMBEDDED)]


async def test_telling_goes_on_beside_the_rounds_through_a_full_disk(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.control.alert_watch.RETRY_S", 0.01)
    telling = asyncio.create_task(alone.watch.keep_telling())
    alone.journal.full = True
    alone.tables = hung(20)
    await alone.rounds.once()
    await asyncio.sleep(0.05)
    assert told(alone) == []
    alone.journal.full = False
    async with asyncio.timeout(10):
        while not told(alone):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


async def test_a_leader_that_was_replaced_tells_nothing_more(alone: World) -> None:
    with closing(LeaderLease(alone.path, "another", 5.0)) as lease:
        lease.acquire()
        lease.release()
        assert lease.acquire() == 2
    alone.tables = hung(20)
    await alone.watch.tick(alone.tables, None)
    async with asyncio.timeout(10):
        await alone.watch.keep_telling()
    assert told(alone) == []


# ---------------------------------------------------------------- what is shown
async def test_pending_alerts_are_shown_though_prometheus_decides(world: World) -> None:
    world.tables = missing()
    await world.seconds(5)
    assert world.watch.rule_source is Source.PROMETHEUS
    assert CACHE in {each.alert for each in world.watch.pending}
    assert world.watch.firing == ()


async def test_tables_that_cannot_be_read_are_not_watched_here_and_are_by_prometheus(
    world: World,
) -> None:
    world.tables = None
    await world.seconds(1)
    assert world.watch.watched
    world.clock.advance(LINES.alerts.heartbeat_silence_s + 1)
    assert await world.rounds.once() is None
    assert not world.watch.watched


async def test_a_data_plane_that_is_down_is_told_though_nothing_else_is_known(
    alone: World,
) -> None:
    alone.tables, alone.plane.reachable = None, False
    for _ in range(int(LINES.alerts.down_s) + 1):
        assert await alone.rounds.once() is None
        alone.clock.advance(1.0)
    assert [each.alert for each in alone.watch.firing or ()] == [AlertName.DATA_PLANE_DOWN]


# ---------------------------------------------------------------- when it looks again
async def test_it_looks_more_often_while_it_alone_decides(world: World, alone: World) -> None:
    await world.seconds(1)
    assert world.watch.pause_s(world.clock(), 1.0, 0.25) == 1.0
    await alone.rounds.once()
    assert alone.watch.pause_s(alone.clock(), 1.0, 0.25) == 0.25


async def test_it_looks_as_soon_as_a_pending_alert_is_due(alone: World) -> None:
    alone.tables = missing()
    await alone.rounds.once()
    alone.clock.advance(LINES.cache.hold_s - 0.125)
    await alone.rounds.once()
    assert alone.watch.pause_s(alone.clock(), 1.0, 0.25) == 0.125


async def test_a_round_follows_a_webhook_at_once(world: World) -> None:
    rounds = asyncio.create_task(world.rounds.run(60.0, 60.0))
    await asyncio.sleep(0.05)
    world.hear(LATENCY)
    world.watch.wake.set()
    async with asyncio.timeout(10):
        while not world.plane.levels:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)
