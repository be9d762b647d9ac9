"""What people are told of a rollout, and in which form: each thing once, whoever reads it."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.notify import Form, Happening
from monitors.journal import Entry
from monitors.labels import Phase
from redline.control.notice_forms import body
from redline.control.notices import KINDS, Notice, Position, told
from rollout.proposal import Wishes
from rollout.state import OR_BACK_TO_0
from rollout.store import STATE_KIND
from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with closing(ScratchJournal()) as journal:
        yield World(journal)


def news(entries: Sequence[Entry], position: Position = Position()) -> list[Notice]:  # noqa: B008
    found: list[Notice] = []
    for entry in entries:
        position, notice = told(position, entry)
        found += [] if notice is None else [notice]
    return found


def entries_of(world: World) -> list[Entry]:
    return world.journal.journal.read(kinds=KINDS, limit=None)


def events(world: World) -> list[Happening]:
    return [notice.event for notice in news(entries_of(world))]


async def broken(world: World) -> None:
    world.faulty(20)
    world.good(40, "b")
    await world.step()


async def test_a_promotion_is_told_from_its_start_to_its_end(world: World) -> None:
    await world.promote()
    await world.bake(canary_requests=2)
    assert events(world)[0] is Happening.STARTED
    assert events(world)[-1] is Happening.PROMOTED
    assert events(world).count(Happening.CANARY) == 1
    promoting = next(n for n in news(entries_of(world)) if n.event is Happening.PROMOTING)
    assert any(line.startswith("faults: pass, 0 of ") for line in promoting.details)


async def test_a_rollback_is_told_when_it_begins_and_with_its_proof_when_it_is_done(
    world: World,
) -> None:
    await world.start()
    await broken(world)
    assert events(world) == [
        Happening.STARTED,
        Happening.CANARY,
        Happening.ROLLING_BACK,
        Happening.ROLLED_BACK,
        Happening.QUARANTINED,
    ]
    begun, done, barred = news(entries_of(world))[2:]
    assert begun.title == "v2 is being taken out of traffic"
    assert begun.details[0].startswith("faults: 20 of 23 requests")
    assert any("pool epoch 1 -> 2" in line for line in done.details)
    assert any(line.startswith("verify proved: ") for line in done.details)
    assert "to lift it: redline rollout clear-quarantine sha256:v2" in barred.details


async def test_an_incomplete_rollback_is_told_once_however_often_it_is_tried(world: World) -> None:
    await world.start()
    world.plane.residents["a"].lies = True
    await broken(world)
    for _ in range(5):
        await world.step(40.0)
    told_of = [n for n in news(entries_of(world)) if n.event is Happening.INCOMPLETE]
    assert len(told_of) == 1
    assert told_of[0].title.startswith("ROLLBACK_INCOMPLETE: v2")
    assert told_of[0].details[0].startswith("verify: the probe refutes the flush")
    world.plane.residents["a"].lies = False
    await world.step(40.0)
    assert events(world)[-2:] == [Happening.ROLLED_BACK, Happening.QUARANTINED]


async def test_a_freeze_is_no_news_and_a_hold_is_one(world: World) -> None:
    await world.start()
    await world.controller.freeze("bob")
    await world.controller.unfreeze("bob")
    await world.controller.hold("bob")
    *_, before, held = news(entries_of(world))
    assert (before.event, held.event) == (Happening.CANARY, Happening.HELD)
    assert held.actor == "bob"
    assert held.details == (f"held by hand; {OR_BACK_TO_0}",)
    await world.controller.resume("bob")
    assert events(world)[-1] is Happening.CANARY


async def begun(world: World) -> None:
    """A rollout that waits for A."""
    world.plane.kill("a")
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes())
    await world.controller.start(plan, "ann")


@pytest.mark.parametrize("held", [False, True])
async def test_what_is_called_off_is_no_model_that_was_refused(world: World, held: bool) -> None:
    await begun(world)
    if held:
        await world.controller.hold("ann")
    await world.controller.rollback("bob", "not today")
    told_last = news(entries_of(world))[-1]
    assert (told_last.event, told_last.actor) == (Happening.CALLED_OFF, "bob")
    assert told_last.title == "The rollout of v2 (a) beside b is called off before it had traffic"


async def test_nobody_is_told_that_a_is_out_of_traffic_where_that_is_not_shown(
    world: World,
) -> None:
    await world.promote()
    world.plane.lose_acks = 9
    await world.controller.rollback("ann", "it sounds wrong")
    told_last = news(entries_of(world))[-1]
    assert told_last.event is Happening.INCOMPLETE
    assert told_last.title.endswith("is NOT shown to be out of traffic")


async def test_a_that_somebody_made_the_stable_one_is_held_at_everybody(world: World) -> None:
    await world.promote()
    held = world.plane.route
    await world.plane.set_route(msgspec.structs.replace(held, route_epoch=held.route_epoch + 1))
    await world.step()
    told_last = news(entries_of(world))[-1]
    assert (told_last.event, world.plane.weight("a")) == (Happening.HELD, 100)
    assert told_last.title == "The rollout of v2 is held, at 100 %"


async def test_a_rollout_after_one_that_a_shared_cause_took_back_has_its_own_start(
    world: World,
) -> None:
    await world.start()
    for _ in range(25):
        world.faulty(1, resident="b")
        world.faulty(1, resident="a")
    await world.step()
    assert world.status.phase is Phase.HOLD
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes())
    await world.controller.start(plan, "ann")
    assert events(world)[-2:] == [Happening.HELD, Happening.STARTED]


async def test_a_hold_that_goes_on_at_nothing_is_told_again(world: World) -> None:
    await world.start()
    await world.controller.hold("bob")
    for _ in range(70):
        await world.step()
    titles = [n.title for n in news(entries_of(world)) if n.event is Happening.HELD]
    assert titles == [f"The rollout of v2 is held, at {share} %" for share in (5, 0)]


async def test_a_rollout_whose_model_is_refused_is_told_to_its_end(world: World) -> None:
    await world.controller.tick()
    plan, _ = await world.controller.propose(Wishes(model="/models/v3"))
    await world.controller.start(plan, "ann")
    world.plane.end_load("a", refusal="v3: its weights are damaged")
    for _ in range(3):
        await world.step()
    assert events(world) == [Happening.STARTED, Happening.REFUSED]
    refused = news(entries_of(world))[-1]
    assert refused.title == "v3 (a) beside b is not rolled out: A is as it was"
    assert "its weights are damaged" in refused.details[0]


async def test_each_step_of_a_promotion_is_told_and_so_is_its_bake(world: World) -> None:
    await world.promote()
    promoting = [n for n in news(entries_of(world)) if n.event is Happening.PROMOTING]
    assert [notice.title for notice in promoting] == [
        *(f"v2 (a) beside b is being promoted, to {share} %" for share in (25, 50, 100)),
        "v2 (a) serves everybody, and is judged for 60 s more",
    ]


async def test_an_entry_of_another_form_is_passed_over(world: World) -> None:
    world.journal.journal.append(STATE_KIND, "ann", {"old": "form"}, 1)
    await world.start()
    assert events(world) == [Happening.STARTED, Happening.CANARY]


async def test_whoever_goes_on_where_another_stopped_tells_the_rest_and_nothing_else(
    world: World,
) -> None:
    await world.start()
    await broken(world)
    entries = entries_of(world)
    whole = news(entries)
    for cut in range(len(entries) + 1):
        position = Position()
        for entry in entries[:cut]:
            position, _ = told(position, entry)
        kept = msgspec.json.decode(msgspec.json.encode(position), type=Position)
        assert news(entries[:cut]) + news(entries[cut:], kept) == whole


# ---------------------------------------------------------------- forms
NOTICE = Notice(
    id=7, wall=1_800_000_000.0, event=Happening.HELD, title="v<2> & more", actor="ann",
    version="v2", details=("<!channel> look", "x" * 5_000),
)  # fmt: skip


def decoded(form: Form, notice: Notice = NOTICE) -> dict[str, Any]:
    return msgspec.json.decode(body(form, notice))


def test_for_machines_it_is_the_fields_of_the_notice() -> None:
    found = decoded(Form.JSON)
    assert found.pop("source") == "redline"
    assert msgspec.convert(found, Notice) == NOTICE


def test_in_slack_s_form_nobody_can_be_mentioned_and_nothing_is_too_long() -> None:
    found = decoded(Form.SLACK)
    assert found["text"] == "v&lt;2&gt; &amp; more"
    head, section, context = found["blocks"]
    assert head == {"type": "header", "text": {"type": "plain_text", "text": "v<2> & more"}}
    assert section["text"]["text"].startswith("• &lt;!channel&gt; look\n")
    assert context["elements"][0]["text"] == (
        "held by ann, 2027-01-15 08:00:00 UTC, entry 7 of the journal"
    )


@given(title=st.text(min_size=1), details=st.lists(st.text(), max_size=4), actor=st.text())
def test_whatever_is_in_a_notice_slack_s_limits_are_kept(
    title: str, details: list[str], actor: str
) -> None:
    notice = msgspec.structs.replace(NOTICE, title=title, details=tuple(details), actor=actor)
    for block in decoded(Form.SLACK, notice)["blocks"]:
        texts = block["elements"] if block["type"] == "context" else [block["text"]]
        for text in texts:
            most = 150 if text["type"] == "plain_text" else 3_000
            assert 0 < len(text["text"]) <= most
            assert text["type"] == "plain_text" or "<" not in text["text"]
