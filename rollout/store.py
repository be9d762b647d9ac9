"""What a rollout keeps in the journal, and how it comes back from there."""

import logging

import msgspec

from monitors.contract import Wire
from monitors.evidence import Cursor
from monitors.journal import Entry
from rollout import rollback
from rollout.fold import EvidenceFold, FoldState
from rollout.ledger import Ledger
from rollout.rollback import Progress
from rollout.sequential import Numbers
from rollout.state import RolloutState

log = logging.getLogger(__name__)

STATE_KIND = "rollout.state"
EVIDENCE = "rollout.evidence"  # a memory beside the journal
EVIDENCE_KIND = EVIDENCE  # of the entries that an earlier release wrote instead
ACTOR = "rollout"  # of what the controller does by itself


class SavedState(Wire, frozen=True):
    """A state as journalled, with the time already spent in its phase. `canary`, `stable`: what
    the evidence said of A and of B when it was decided, for people; a restart needs none of it."""

    state: RolloutState
    phase_s: float
    canary: tuple[Numbers, ...] = ()
    stable: tuple[Numbers, ...] = ()


class SavedEvidence(Wire, frozen=True):
    """How far the evidence log was read and what the tests made of it: one fact, the newest alone.

    `state`: the id of the state's entry in which that was, and `phase_s` the time spent in it.
    """

    cursor: Cursor
    fold: FoldState
    phase_s: float
    state: int


class StateUnreadable(ValueError):
    """The state was written in another form. Whoever began from nothing would forget who is under
    quarantine, and that it is frozen."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the last controller stood. Evidence after `cursor` is yet to be read."""

    state: RolloutState = RolloutState()
    phase_s: float = 0.0
    cursor: Cursor = Cursor()
    fold: EvidenceFold | None = None
    progress: Progress | None = None  # of the last rollback


def save_state(
    ledger: Ledger,
    state: RolloutState,
    phase_s: float,
    actor: str,
    *,
    urgent: bool,
    seen: EvidenceFold | None = None,
) -> None:
    """Journal a state before acting on it. Urgent ones, toward B, are kept where it cannot be."""
    write = ledger.write_or_keep if urgent else ledger.write
    saved = SavedState(state=state, phase_s=phase_s)
    if seen is not None and seen.warm_from == state.warm_from:  # not of the rollout before
        saved = msgspec.structs.replace(saved, canary=seen.numbers(), stable=seen.baseline())
    write(STATE_KIND, actor, saved)


def save_evidence(ledger: Ledger, cursor: Cursor, fold: EvidenceFold, phase_s: float) -> None:
    """Keep what was read. What comes after is read again from the log, so nothing is lost.

    Not in the journal, which keeps all: many kilobytes, every few seconds, of which a successor
    needs the newest alone. Raises as `Ledger.remember` does.
    """

    def saved() -> SavedEvidence:
        state = ledger.newest(STATE_KIND)
        return SavedEvidence(cursor=cursor, fold=fold.save(), phase_s=phase_s, state=state)

    ledger.remember(EVIDENCE, saved)


def recover(ledger: Ledger) -> Recovered:
    """The journal's last word; a rollback goes on at its first unproved step.

    Raises `StateUnreadable`.
    """
    entry = ledger.last(STATE_KIND)
    if entry is None:
        return Recovered()
    saved = _state(entry)
    order = saved.state.order
    recovered = Recovered(
        state=saved.state,
        phase_s=saved.phase_s,
        progress=rollback.last(ledger) if order is None else rollback.resume(ledger, order),
    )
    try:
        found = ledger.remembered(EVIDENCE, SavedEvidence)
        if found is None or saved.state.plan is None:
            return recovered
        if found.fold.warm_from != saved.state.warm_from:
            return recovered  # of an earlier rollout
        fold = EvidenceFold.restore(saved.state.plan, found.fold)
    except ValueError as err:  # written by another release; the log itself is read again
        log.warning("the saved evidence cannot be read, it starts anew: %s", err)
        return recovered
    return msgspec.structs.replace(
        recovered,
        phase_s=found.phase_s if found.state == entry.id else saved.phase_s,
        cursor=found.cursor,
        fold=fold,
    )


def _state(entry: Entry) -> SavedState:
    try:
        return entry.read_as(SavedState)
    except msgspec.DecodeError as err:
        raise StateUnreadable(
            f"entry {entry.id} of the journal has the rollout's state in another form ({err}):"
            " start the release that wrote it, and end the rollout there before the next one"
        ) from err
