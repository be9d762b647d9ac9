"""Receivers over real HTTP: told in order and at least once, and in nobody's way."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alerts.notify import POSITIONS, Happening, NoAddress, Receiver
from monitors.journal import Entry, JournalUnwritable
from redline.cli import app
from redline.control.notifier import Notifier, Positions
from rollout.store import STATE_KIND
from tests.support.http_server import Answer, Server, recording_server
from tests.support.journals import ScratchJournal
from tests.support.office import Office, in_office, until
from tests.support.sim_dataplane import SimDataPlane
from tests.unit.rollout.world import World

UP, DOWN, WRONG = Answer(b"ok"), Answer(b"", 503), Answer(b"no_service", 404)


@pytest.fixture
def server() -> Iterator[Server]:
    with recording_server() as running:
        running.answers["/one"] = UP
        running.answers["/two"] = UP
        yield running


@pytest.fixture
def journal() -> Iterator[ScratchJournal]:
    with closing(ScratchJournal()) as opened:
        yield opened


@pytest.fixture
def world(journal: ScratchJournal) -> World:
    return World(journal)


@pytest.fixture
def one(server: Server, tmp_path: Path) -> Receiver:
    return receiver(tmp_path, "one", f"{server.url}/one")


def receiver(folder: Path, name: str, url: str, **more: Any) -> Receiver:
    (folder / name).write_text(f"{url}\n")
    return Receiver(name=name, url_file=folder / name, **more)


class Counted:
    """A counter as the exposition has them."""

    def __init__(self) -> None:
        self.of = {"taken": 0, "repeated": 0, "refused": 0}

    def inc(self, result: str, by: float = 1.0) -> None:
        self.of[result] += 1


@asynccontextmanager
async def telling(
    journal: ScratchJournal, *receivers: Receiver, **more: Any
) -> AsyncIterator[tuple[Notifier, Counted]]:
    """A notifier that has found out where it stands."""
    counted = Counted()
    counter: Any = counted
    notifier = Notifier(journal, receivers, 1, counter, pause_s=0.02, **more)
    before = last_id(journal)
    task = asyncio.create_task(notifier.run())
    try:
        await until(lambda: last_id(journal) != before or task.done())
        yield notifier, counted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def last_id(journal: ScratchJournal, kind: str = POSITIONS) -> int | None:
    found = journal.last(kind)
    return None if found is None else found.id


def noted(journal: ScratchJournal) -> int | None:
    """Up to which entry the first receiver was told, as a successor will read it."""
    found = journal.last(POSITIONS)
    return None if found is None else found.read_as(Positions).of["one"].upto


def told(server: Server, path: str = "/one") -> list[str]:
    return [json.loads(seen.body)["event"] for seen in server.seen if seen.path == path]


STARTED = ["started", "canary"]


async def test_what_happens_is_told_in_order_and_counted(
    journal: ScratchJournal, world: World, server: Server, one: Receiver
) -> None:
    async with telling(journal, one) as (notifier, counted):
        await world.start()
        await world.controller.hold("bob")
        notifier.wake()
        await until(lambda: counted.of["taken"] == 3)
        assert told(server) == [*STARTED, "held"]
        assert counted.of == {"taken": 3, "repeated": 0, "refused": 0}
    headers = [seen.headers["x-redline-notice"] for seen in server.seen]
    assert headers == [str(json.loads(seen.body)["id"]) for seen in server.seen]


async def test_one_that_is_away_hears_everything_when_it_is_back_and_the_others_at_once(
    journal: ScratchJournal, world: World, server: Server, tmp_path: Path, one: Receiver
) -> None:
    two = receiver(tmp_path, "two", f"{server.url}/two")
    server.answers["/one"] = DOWN
    async with telling(journal, one, two) as (notifier, counted):
        await world.start()
        notifier.wake()
        await until(lambda: told(server, "/two") == STARTED and len(told(server)) >= 3)
        assert set(told(server)) == {"started"}, "in order: the second one waits for the first"
        tried = len(server.seen)
        server.answers["/one"] = UP
        await until(lambda: counted.of["taken"] == 4)
    assert [json.loads(seen.body)["event"] for seen in server.seen[tried:]] == STARTED
    assert counted.of["repeated"] >= 3


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "http:///x"])
async def test_an_address_that_there_is_not_is_said_and_in_nobody_elses_way(
    journal: ScratchJournal,
    world: World,
    server: Server,
    tmp_path: Path,
    one: Receiver,
    caplog: pytest.LogCaptureFixture,
    url: str,
) -> None:
    two = receiver(tmp_path, "two", url)
    async with telling(journal, one, two) as (notifier, counted):
        await world.start()
        notifier.wake()
        await until(lambda: counted.of["repeated"] >= 2)
        (tmp_path / "two").write_text(f"{server.url}/two\n")
        await until(lambda: told(server, "/two") == told(server, "/one") == STARTED)
    assert "has no host, or no such port" in caplog.text
    assert url not in caplog.text


async def test_an_error_that_nobody_thought_of_is_in_nobody_elses_way(
    journal: ScratchJournal,
    world: World,
    server: Server,
    tmp_path: Path,
    one: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two, read = receiver(tmp_path, "two", f"{server.url}/two"), Receiver.url

    def url(self: Receiver) -> str:
        if self.name == "two":
            raise KeyError("a mistake of ours")
        return read(self)

    monkeypatch.setattr(Receiver, "url", url)
    async with telling(journal, one, two) as (notifier, counted):
        await world.start()
        notifier.wake()
        await until(lambda: told(server) == STARTED and counted.of["repeated"] >= 2)


async def test_a_successor_goes_on_where_this_one_stood(
    journal: ScratchJournal, world: World, server: Server, one: Receiver
) -> None:
    async with telling(journal, one) as (notifier, _):
        await world.start()
        notifier.wake()
        await until(lambda: noted(journal) == last_id(journal, STATE_KIND))
    await world.controller.hold("bob")  # while nobody tells
    async with telling(journal, one):
        await until(lambda: len(told(server)) == 3)
    assert told(server) == [*STARTED, "held"]


async def test_one_that_died_before_it_noted_what_it_told_tells_it_again(
    journal: ScratchJournal,
    world: World,
    server: Server,
    one: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with telling(journal, one) as (notifier, counted):
        with monkeypatch.context() as patch:
            append = journal.append

            def full(kind: str, *rest: Any) -> Entry:
                if kind == POSITIONS:
                    raise JournalUnwritable("the disk is full")
                return append(kind, *rest)

            patch.setattr(journal, "append", full)
            await world.start()
            notifier.wake()
            await until(lambda: counted.of["taken"] == 2)
    async with telling(journal, one):
        await until(lambda: len(told(server)) == 4)
    assert told(server) == [*STARTED, *STARTED]


async def test_a_receiver_that_is_new_hears_of_what_comes_and_not_of_what_was(
    journal: ScratchJournal, world: World, server: Server, one: Receiver
) -> None:
    await world.start()
    async with telling(journal, one) as (notifier, _):
        await world.controller.hold("bob")
        notifier.wake()
        await until(lambda: told(server))
        assert told(server) == ["held"]


async def test_what_is_refused_for_good_is_given_up_and_the_next_one_is_told(
    journal: ScratchJournal, world: World, server: Server, one: Receiver
) -> None:
    server.answers["/one"] = WRONG
    async with telling(journal, one) as (notifier, counted):
        await world.start()
        notifier.wake()
        await until(lambda: counted.of["refused"] == 2)
        server.answers["/one"] = UP
        await world.controller.hold("bob")
        notifier.wake()
        await until(lambda: counted.of["taken"] == 1)
    assert told(server) == ["started"] * 3 + ["canary"] * 3 + ["held"]


async def test_old_news_is_no_news(
    journal: ScratchJournal, world: World, server: Server, one: Receiver
) -> None:
    async with telling(journal, one, wall=lambda: time.time() + 90_000.0) as (notifier, counted):
        await world.start()
        notifier.wake()
        await until(lambda: counted.of["refused"] == 2)
    assert server.seen == []


async def test_each_is_told_only_what_it_wants_to_hear(
    journal: ScratchJournal, world: World, server: Server, tmp_path: Path
) -> None:
    picky = receiver(tmp_path, "one", f"{server.url}/one", tell=(Happening.HELD,))
    async with telling(journal, picky) as (notifier, _):
        await world.start()
        await world.controller.hold("bob")
        notifier.wake()
        await until(lambda: told(server))
    assert told(server) == ["held"]


async def test_a_receiver_that_never_answers_holds_up_no_rollback(tmp_path: Path) -> None:
    dataplane: Any = SimDataPlane(time.monotonic)  # pyright: ignore[reportArgumentType]
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}/"
        office = Office(tmp_path, dataplane, notify=(receiver(tmp_path, "one", url),))
        async with in_office(office) as running:
            await until(lambda: office.plane.journal.last(POSITIONS))
            plan, _ = await office.controller.propose()
            await office.controller.start(plan, "ann")
            await until(lambda: office.controller.status().weight)
            status = await asyncio.wait_for(office.controller.rollback("ann", "for a test"), 4)
            assert status.quarantined
            assert not running.done()
            assert 'redline_control_notices_total{result="taken"} 0.0' in office.metrics()


async def test_an_error_in_the_notifier_ends_no_control_plane(
    tmp_path: Path, server: Server, one: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Notifier) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Notifier, "run", broken)
    dataplane: Any = SimDataPlane(time.monotonic)  # pyright: ignore[reportArgumentType]
    office = Office(tmp_path, dataplane, notify=(one,))
    async with in_office(office) as running:
        await asyncio.sleep(0.2)
        assert not running.done()
        assert not office.deposed


# ---------------------------------------------------------------- where its URL is
def test_a_url_is_read_where_it_is_said_to_be_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = Receiver(name="one", url_env="HOOK")
    monkeypatch.setenv("HOOK", "https://hooks.example/secret")
    assert by_name.url() == "https://hooks.example/secret"
    monkeypatch.setenv("HOOK", "hooks.example/secret")
    with pytest.raises(NoAddress, match=r"one: \$HOOK holds no http") as refused:
        by_name.url()
    assert "secret" not in str(refused.value)
    with pytest.raises(NoAddress, match="cannot be read"):
        Receiver(name="one", url_file=tmp_path / "none").url()


def test_redline_notify_shows_receivers_and_tries_them(tmp_path: Path, server: Server) -> None:
    (tmp_path / "url").write_text(f"{server.url}/one")
    lines = tmp_path / "redline.yaml"
    lines.write_text(
        f"notify:\n- {{name: on-call, form: slack, url_file: {tmp_path}/url}}\n"
        "- {name: other, url_env: NOT_SET_ANYWHERE}\n"
    )
    run = CliRunner().invoke
    shown = run(app, ["notify", "--lines", str(lines)])
    assert shown.exit_code == 1
    assert f"its URL is in {tmp_path}/url" in shown.output
    assert "other: json" in shown.output
    assert "$NOT_SET_ANYWHERE holds no http" in shown.output
    tried = run(app, ["notify", "--test", "--lines", str(lines)])
    assert (tried.exit_code, tried.output.splitlines()[0]) == (1, "on-call: told")
    assert json.loads(server.seen[0].body)["text"] == "This is a test of Redline's notices"
    nobody = run(app, ["notify", "--state-dir", str(tmp_path / "none")])
    assert nobody.exit_code == 2
