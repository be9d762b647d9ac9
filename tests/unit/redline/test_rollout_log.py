"""`redline rollout log`: who decided what, when, on which figures, and how each step was proved."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from alerts.parts import Part
from monitors.journal import Entry
from redline.client import ClientError
from redline.control.api import JournalLine
from redline.control.ladder_events import MOVED
from redline.control.stories import story
from redline.rollout_log import LogLine, chapters, show_log
from redline.settings import Stack
from rollout.rollback import KIND
from rollout.store import STATE_KIND
from tests.support.http_server import Answer, Server, recording_server
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with closing(ScratchJournal()) as journal:
        yield World(journal)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("COLUMNS", "80")
    with recording_server() as running:
        yield running


def lines_of(world: World) -> list[JournalLine]:
    """As the control plane serves them."""

    def line(entry: Entry) -> JournalLine:
        return JournalLine(
            id=entry.id, wall=entry.wall, leader_epoch=entry.leader_epoch, actor=entry.actor,
            kind=entry.kind, story=story(entry), body=msgspec.json.decode(entry.body),
        )  # fmt: skip

    return [line(entry) for entry in world.journal.journal.read(limit=None)]


class Shown:
    """What the command prints of a world's journal."""

    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str], world: World) -> None:
        self._server, self._capsys, self._world = server, capsys, world

    def __call__(self, number: int | None = None, **more: Any) -> list[str]:
        body = msgspec.json.encode(lines_of(self._world))
        for told in ("true", "false"):
            self._server.answers[f"/api/journal?told={told}"] = Answer(body)
        stack = Stack(runtime_url=self._server.url, control_url=self._server.url, token="t")
        show_log(stack, number, **{"whole": False, "as_json": False, **more})
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def shown(server: Server, capsys: pytest.CaptureFixture[str], world: World) -> Shown:
    return Shown(server, capsys, world)


async def rolled_back(world: World) -> None:
    await world.start()
    world.faulty(20)
    world.good(40, "b")
    await world.step()
    assert world.status.quarantined


async def test_a_rollback_is_told_with_its_figures_its_proofs_and_how_long_they_took(
    world: World, shown: Shown
) -> None:
    await rolled_back(world)
    head, *lines = shown()
    assert head.startswith("rollout 1: v2 (a) beside b, 5 % of new sessions for 60 s, begun by ann")
    assert "; quarantined after " in head
    told = "\n".join(lines)
    assert " ann        prepare, A at 0 %: waits until both residents can serve" in told
    at = next(n for n, line in enumerate(lines) if " rolling_back, A at 0 %: faults: " in line)
    assert lines[at + 1].startswith(
        "      faults: breach; on A 20 of 23, on B 0 of 40; the line is"
    )
    assert "E " in lines[at + 1]
    for step in ("cut_over", "drain", "flush", "verify"):
        assert f" rollout    {step} proved in " in told
    assert " rollout    quarantine proved: sha256:v2" in told
    assert "pool epoch 1 -> 2" in told
    assert told.count("faults: breach") == 1, "the same figures are not said again"


async def test_that_a_serves_everybody_is_told(world: World, shown: Shown) -> None:
    await world.promote()
    await world.bake(canary_requests=2)
    told = "\n".join(shown())
    assert " canary, A at 5 %: " in told
    assert " bake, A at 100 %: A serves everybody" in told
    assert " stable, A at 100 %: A kept its lines" in told


async def test_for_machines_each_entry_is_an_object_with_its_rollout_and_its_time(
    world: World, shown: Shown
) -> None:
    await rolled_back(world)
    lines = [msgspec.json.decode(line, type=LogLine) for line in shown(as_json=True)]
    assert [line.id for line in lines] == [line.id for line in lines_of(world)]
    assert {line.rollout for line in lines} == {1}
    assert lines[0].actor == "ann"
    steps = [line for line in lines if line.kind == KIND]
    assert [line.took_s is None for line in steps] == [True, False] * 6  # begun, proved
    breach = next(
        line.body for line in lines if line.kind == STATE_KIND and "rolling_back" in str(line.story)
    )
    assert isinstance(breach, dict)
    assert breach["canary"][0]["events"] == 20.0


async def test_a_second_rollout_is_another_story(world: World, shown: Shown) -> None:
    await rolled_back(world)
    second = len(lines_of(world)) + 2
    await world.controller.clear_quarantine(world.status.quarantined[0], "bob")
    await world.start()
    assert "on A 20" not in "\n".join(shown()), "figures of the one before"
    assert shown()[0].startswith(f"rollout {second}: v2 (a)")
    assert any("was cleared by hand" in line for line in shown(1))
    assert not any("was cleared by hand" in line for line in shown(second))
    heads = [line for line in shown(whole=True) if line.startswith("rollout ")]
    assert [int(head.split()[1].rstrip(":")) for head in heads] == [1, second]
    with pytest.raises(ClientError, match=f"no rollout 77 .* there are: 1, {second}"):
        shown(77)


async def test_a_rollout_that_is_held_and_resumed_is_still_the_same_one(
    world: World, shown: Shown
) -> None:
    await world.start()
    await world.controller.hold("bob")
    await world.controller.resume("bob")
    world.plane.residents["a"].hangs = True
    assert len(list(chapters(lines_of(world)))) == 1
    assert sum(" bob " in line for line in shown()) == 2


async def test_one_that_was_held_at_nothing_and_goes_on_is_still_the_same_one(
    world: World,
) -> None:
    await world.start()
    world.clock.advance(world.lines.rollout.evidence_stale_s + 1.0)
    await world.controller.tick()  # nobody could see: A goes to 0
    assert not world.status.weight
    await world.step()
    await world.controller.resume("bob")
    assert world.status.weight
    assert len(list(chapters(lines_of(world)))) == 1


async def test_what_others_did_meanwhile_is_in_the_story_and_in_all_of_it_what_was_before(
    world: World, shown: Shown
) -> None:
    moved = {"at": 0.0, "version": "v1", "part": Part.MEDIA, "rung": 1, "reason": "[slow]"}
    world.journal.journal.append(MOVED, "ladder", moved, 1)
    await world.start()
    world.journal.journal.append(MOVED, "ladder", {**moved, "version": "v2"}, 1)
    assert not any("v1: media" in line for line in shown())
    assert any(line.endswith("v2: media to rung 1, 360p+8k ([slow])") for line in shown())
    assert shown(whole=True)[0] == "before the first rollout that is kept"
    assert "v1: media to rung 1" in shown(whole=True)[1]


def test_without_a_rollout_it_says_so(world: World, shown: Shown) -> None:
    assert shown() == ["no rollout is in the journal; --all shows what else is"]
    assert shown(as_json=True) == []


async def test_an_entry_that_an_earlier_release_wrote_hides_no_other(
    world: World, shown: Shown
) -> None:
    world.journal.journal.append(STATE_KIND, "ann", {"old": "form"}, 1)
    world.journal.journal.append(KIND, "ann", {"old": "form"}, 1)
    assert [chapter.number for chapter in chapters(lines_of(world))] == [None]
    assert sum("old" in line for line in shown(whole=True)) == 2
