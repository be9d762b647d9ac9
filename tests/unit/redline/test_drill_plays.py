"""Each drill passes on a stack that answers, and on none that answers all but right."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from alerts.firing import Source
from monitors.contract import Admission, MediaRung, Shed
from redline.drills import control_down, engine, machinery
from redline.drills.stage import CannotRun, Stage, Unanswered
from redline.drills.timeline import BREACH, Mark, wanting
from tests.unit.redline.drill_world import DWELL_S, World, stage_in
from tests.unit.redline.test_drill_signs import NOTHING

Odd = Callable[[World], None]
Play = Callable[[Stage], None]


def complaints(
    play: Play, odd: Odd, monkeypatch: pytest.MonkeyPatch, *, own_traffic: bool = True
) -> tuple[str, ...]:
    """What a drill says is wanting in a world that is odd in this way."""
    return wanting(played(play, odd, monkeypatch, own_traffic=own_traffic).timeline)


def played(
    play: Play, odd: Odd, monkeypatch: pytest.MonkeyPatch, *, own_traffic: bool = True
) -> Stage:
    """The stage after a drill."""
    world = World()
    odd(world)
    stage = stage_in(world, monkeypatch, own_traffic=own_traffic)
    with stage.damage.mended_at_the_end(), suppress(Unanswered):
        play(stage)
    return stage


def as_it_should(_: World) -> None:
    """Nothing is odd."""


def killed(stage: Stage) -> None:
    control_down.control_down(stage, None)


def held(seconds: float) -> Play:
    return lambda stage: control_down.control_down(stage, seconds)


def silent(stage: Stage) -> None:
    machinery.silent(stage, machinery.PROMETHEUS)


PLAYS = [
    pytest.param(engine.latency, id="latency"),
    pytest.param(engine.cache, id="cache"),
    pytest.param(killed, id="killed"),
    pytest.param(held(15.0), id="held"),
    pytest.param(silent, id="silent"),
]


@pytest.mark.parametrize("own_traffic", [True, False])
@pytest.mark.parametrize("play", [*PLAYS, pytest.param(held(50.0), id="held long")])
def test_a_stack_that_answers_passes(
    play: Play, own_traffic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = played(play, as_it_should, monkeypatch, own_traffic=own_traffic)
    assert wanting(stage.timeline) == ()
    assert stage.damage.told == "what was broken is mended"


# ---------------------------------------------------------------- what no engine drill lets pass
def a_fresh_process(world: World) -> None:
    lowered = world.lower
    world.lower = lambda part: (lowered(part), setattr(world, "pid", 78))[0]


def a_fresh_pool(world: World) -> None:
    world.later(40.0, lambda: setattr(world, "pool_epoch", 4))


@pytest.mark.parametrize("odd", [a_fresh_process, a_fresh_pool])
@pytest.mark.parametrize("play", PLAYS)
def test_an_engine_that_died_meanwhile_passes_no_drill(
    play: Play, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = complaints(play, odd, monkeypatch)
    assert "should be the same process with its pool" in told[-1]


def a_part_stays_down(world: World) -> None:
    eased = world.ease

    def ease() -> None:
        eased()
        world.hold(shed=Shed.ON)

    world.ease = ease


@pytest.mark.parametrize("play", PLAYS)
def test_a_part_that_stays_down_is_no_recovery(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = complaints(play, a_part_stays_down, monkeypatch)
    assert told.startswith("recovery: not seen within")


def a_part_comes_back_a_dwell_later(world: World) -> None:
    a_part_stays_down(world)
    eased = world.ease

    def again() -> None:
        world.hold(shed=Shed.OFF)

    def ease() -> None:
        eased()
        world.ease_at = world.now + world.dwell_s
        world.later(world.dwell_s, again)

    world.ease = ease


def and_its_dwell_has_doubled_twice(world: World) -> None:
    world.dwell_s = 4 * DWELL_S
    a_part_comes_back_a_dwell_later(world)


def a_part_was_down_before(world: World) -> None:
    world.hold(admission=Admission.LIMITED)


@pytest.mark.parametrize(
    "odd",
    [
        a_part_comes_back_a_dwell_later,
        and_its_dwell_has_doubled_twice,
        a_part_was_down_before,
    ],
)
def test_a_part_has_its_own_dwell_and_one_that_was_down_before_may_stay(
    odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complaints(engine.latency, odd, monkeypatch) == ()


# ---------------------------------------------------------------- nobody decides
def nothing_is_answered(world: World) -> None:
    world.served_while_down = False


def one_fails(world: World) -> None:
    kill, stop = world.kill, world.stop

    def down(then: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        return lambda *given: (world.failures.append((world.now, "HTTP 503")), then(*given))[1]

    world.kill, world.stop = down(kill), down(stop)


def it_moves_again(world: World) -> None:
    lowered = world.lower
    world.lower = lambda part: (lowered(part), lowered(part))[0]


def on_the_way_down(world: World, happens: Callable[[], None]) -> None:
    kill, stop = world.kill, world.stop
    world.kill = lambda *given: (kill(*given), world.later(0.5, happens))[1]
    world.stop = lambda *given: (stop(*given), world.later(0.5, happens))[1]


def the_level_is_forgotten(world: World) -> None:
    on_the_way_down(world, lambda: world.hold(media=MediaRung.FULL))


def it_has_no_share(world: World) -> None:
    on_the_way_down(world, lambda: setattr(world, "weight", 0))


NOBODY_DECIDES = [
    (nothing_is_answered, "served: not seen within"),
    (one_fails, "1 requests failed while the control plane was away: ['HTTP 503']"),
    (it_moves_again, "down more than once: [1, 1]"),
    (the_level_is_forgotten, "forgot its media while nobody led"),
    (it_has_no_share, "was left without traffic"),
]


@pytest.mark.parametrize(("odd", "says"), NOBODY_DECIDES)
@pytest.mark.parametrize("own_traffic", [True, False])
@pytest.mark.parametrize("play", [killed, held(15.0)])
def test_what_must_not_be_so_while_nobody_decides(
    play: Play, own_traffic: bool, odd: Odd, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = complaints(play, odd, monkeypatch, own_traffic=own_traffic)
    assert any(says in sentence for sentence in told), told


def test_requests_that_wait_for_the_next_leader_are_not_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waits(world: World) -> None:
        nothing_is_answered(world)
        start = world.start_control
        world.start_control = lambda: (start(), world.serve())[0]

    (told,) = complaints(killed, waits, monkeypatch)
    assert told.startswith("served: not seen within")


def test_one_that_never_leads_again_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(world: World) -> None:
        world.start_control = lambda: None

    stage = played(killed, gone, monkeypatch)
    assert wanting(stage.timeline)[0].startswith("led: not seen within")
    assert "`redline up` starts the control plane again" in stage.damage.told


def test_the_old_epoch_leads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def the_same(world: World) -> None:
        world.start_control = lambda: setattr(world, "control_up", True)

    (told, *_) = complaints(killed, the_same, monkeypatch)
    assert told.startswith("led: not seen within")


# ---------------------------------------------------------------- nothing evaluates
def nobody_takes_over(world: World) -> None:
    world.silent_s = 3600.0


def it_is_not_heard_again(world: World) -> None:
    world.heard_s = 3600.0


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (nobody_takes_over, "embedded: not seen within"),
        (it_is_not_heard_again, "back: not seen within"),
        (it_moves_again, "down more than once: [1, 1]"),
    ],
)
def test_a_silence_that_is_not_answered_fails(
    odd: Odd, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = complaints(silent, odd, monkeypatch)
    assert any(says in sentence for sentence in told), told


def test_under_a_silence_the_breach_counts_from_the_taking_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = {step.key: step for step in played(silent, as_it_should, monkeypatch).timeline.steps}
    since = {key: steps[key].since for key in (BREACH, machinery.BACK, engine.QUIET)}
    assert since == {
        BREACH: machinery.EMBEDDED, machinery.BACK: machinery.AWAKE, engine.QUIET: machinery.BACK,
    }  # fmt: skip


def test_what_evaluates_itself_already_cannot_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.source = Source.EMBEDDED
    stage = stage_in(world, monkeypatch)
    with pytest.raises(CannotRun, match="evaluated by embedded already"):
        silent(stage)


def test_what_was_so_before_it_went_on_is_not_its_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_in(World(), monkeypatch)
    seen = [Mark(999.0, "before", "test"), Mark(1001.0, "after", "test")]
    sign = machinery.after(stage, machinery.AWAKE, lambda _: seen[0])
    assert sign(NOTHING) is None, "it does not go on yet"
    stage.act(machinery.AWAKE, "Prometheus goes on")
    assert sign(NOTHING) is None
    del seen[0]
    assert sign(NOTHING) == seen[0]


@pytest.mark.parametrize("play", [killed, held(15.0), silent])
def test_how_long_the_drills_own_requests_take_to_end_is_not_counted(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(world: World) -> None:
        world.leaves_s = 12.0
        world.heard_s = 20.0

    assert complaints(play, slowly, monkeypatch) == ()
