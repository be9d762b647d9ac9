"""What of a rollout's journal people are told: pure, one entry after the other."""

from collections.abc import Iterator

import msgspec

from alerts.notify import Happening
from monitors.contract import Count, Epoch, Percent, Wire
from monitors.journal import Entry
from monitors.labels import Phase
from redline.control.beginnings import Place, begins, place_of
from redline.control.stories import story
from rollout.phases import clearing, refuses_model
from rollout.rollback import KIND, Progress, Record, Stage, Step
from rollout.state import RolloutState
from rollout.store import STATE_KIND, SavedState

KINDS = (STATE_KIND, KIND)  # of the entries that may be news
_OF_PHASE = {
    Phase.CANARY: Happening.CANARY,
    Phase.PROMOTING: Happening.PROMOTING,
    Phase.BAKE: Happening.PROMOTING,
    Phase.STABLE: Happening.PROMOTED,
    Phase.HOLD: Happening.HELD,
    Phase.ROLLING_BACK: Happening.ROLLING_BACK,
    Phase.QUARANTINED: Happening.QUARANTINED,
}


class Position(Wire, frozen=True):
    """How far the journal was read, and what of it decides whether the next entry is news."""

    upto: Count = 0
    place: Place = Place()
    share: Percent | None = None  # of A then; None: there was no state yet
    version: str | None = None  # of the last rollout
    incomplete: Epoch | None = None  # the first route epoch of the rollback told to be incomplete


class Notice(Wire, frozen=True):
    """One thing to tell. `id`: the entry that it is from, the same if it comes twice."""

    id: int
    wall: float
    event: Happening
    title: str
    actor: str
    version: str | None
    details: tuple[str, ...] = ()


def told(position: Position, entry: Entry) -> tuple[Position, Notice | None]:
    """The position after an entry, and what is news in it.

    One that an earlier release wrote in another form is passed over.
    """
    beyond = msgspec.structs.replace(position, upto=entry.id)
    try:
        if entry.kind == KIND:
            return _of_step(beyond, entry, entry.read_as(Record))
        return _of_state(beyond, entry, entry.read_as(SavedState))
    except msgspec.ValidationError:
        return beyond, None


def _of_state(
    position: Position, entry: Entry, saved: SavedState
) -> tuple[Position, Notice | None]:
    state = saved.state
    place = place_of(state)
    happening = _happening(position, place, state)
    version = position.version if state.plan is None else state.plan.version
    beyond = msgspec.structs.replace(position, place=place, share=state.share, version=version)
    if happening is None:
        return beyond, None
    details = tuple(_state_details(happening, state, saved))
    return beyond, _notice(entry, happening, version, _title(happening, state, version), details)


def _happening(position: Position, place: Place, state: RolloutState) -> Happening | None:
    """A rollout's beginning or end, or a move to another phase or share; None: no news."""
    if begins(position.place, place):
        return Happening.STARTED
    was = position.place
    if state.phase is Phase.IDLE and (was.under_way or was.phase is Phase.HOLD):
        refused = refuses_model(state.reasons)
        return Happening.REFUSED if refused else Happening.CALLED_OFF
    moved = (state.phase, state.share) != (position.place.phase, position.share)
    return _OF_PHASE.get(state.phase) if moved else None


def _title(happening: Happening, state: RolloutState, version: str | None) -> str:
    plan = state.plan
    beside = "" if plan is None else f" ({plan.canary}) beside {plan.stable}"
    match happening:
        case Happening.STARTED:
            share = "" if plan is None else f", {plan.weight} % for {plan.bake_s:.0f} s"
            return f"A rollout of {version}{beside} has begun{share}"
        case Happening.REFUSED:
            return f"{version}{beside} is not rolled out: A is as it was"
        case Happening.CALLED_OFF:
            return f"The rollout of {version}{beside} is called off before it had traffic"
        case Happening.CANARY:
            return f"{version}{beside} is judged on every line, at {state.share} %"
        case Happening.PROMOTING if plan is not None and state.phase is Phase.BAKE:
            canary, more_s = plan.canary, plan.bake_s
            return f"{version} ({canary}) serves everybody, and is judged for {more_s:.0f} s more"
        case Happening.PROMOTING:
            return f"{version}{beside} is being promoted, to {state.share} %"
        case Happening.PROMOTED:
            return f"{version} is the stable version now"
        case Happening.HELD:
            return f"The rollout of {version} is held, at {state.share} %"
        case Happening.ROLLING_BACK:
            return f"{version} is being taken out of traffic"
        case _:
            return f"{version} is under quarantine"


def _state_details(happening: Happening, state: RolloutState, saved: SavedState) -> Iterator[str]:
    yield from state.reasons
    for numbers in saved.canary if happening is Happening.PROMOTING else ():
        if numbers.n:
            yield f"{numbers.line}: {numbers.verdict}, {numbers.events:.4g} of {numbers.n} on A"
    if happening is Happening.QUARANTINED:
        for identity in state.quarantined:
            yield f"to lift it: {clearing(identity)}"


def _of_step(position: Position, entry: Entry, record: Record) -> tuple[Position, Notice | None]:
    progress, order = record.progress, record.progress.order
    if record.stage is Stage.FAILED and position.incomplete != order.route_epoch:
        beyond = msgspec.structs.replace(position, incomplete=order.route_epoch)
        out = "is out of traffic, and not proved clean"
        if Step.CUT_OVER not in progress.proved:
            out = "is NOT shown to be out of traffic"
        title = f"ROLLBACK_INCOMPLETE: {position.version} {out}"
        details = (
            f"{progress.failure}",
            f"proved so far: {', '.join(progress.proved)}",
            "Redline goes on trying; docs/runbooks/redline-rollback-incomplete.md",
        )
        happening = Happening.INCOMPLETE
        return beyond, _notice(entry, happening, position.version, title, details)
    if record.stage is Stage.PROVED and record.step is Step.DONE:
        title = f"{position.version} is rolled back, and that is proved"
        proofs = (*order.reasons, *_proofs(entry, progress))
        return position, _notice(entry, Happening.ROLLED_BACK, position.version, title, proofs)
    return position, None


def _proofs(entry: Entry, progress: Progress) -> Iterator[str]:
    """As the log tells each step."""
    for step in (Step.CUT_OVER, Step.DRAIN, Step.FLUSH, Step.VERIFY):
        record = Record(step=step, stage=Stage.PROVED, progress=progress)
        body = msgspec.Raw(msgspec.json.encode(record))
        words = story(msgspec.structs.replace(entry, body=body))
        if words is not None:
            yield words


def _notice(
    entry: Entry, event: Happening, version: str | None, title: str, details: tuple[str, ...]
) -> Notice:
    return Notice(
        id=entry.id,
        wall=entry.wall,
        event=event,
        title=title,
        actor=entry.actor,
        version=version,
        details=details,
    )
