"""Journal entries in words, for the page and for `redline rollout log`."""

import msgspec

from alerts.firing import NEWS, SOURCE, AlertNews, SourceChanged
from alerts.notify import POSITIONS
from monitors.contract import DrainReport
from monitors.journal import Entry
from redline.control import ladder_events
from redline.control.ladder_events import MODE, ModeSet
from rollout.rollback import KIND, Record, Stage, Step
from rollout.store import EVIDENCE_KIND, STATE_KIND, SavedState

_WORK = (Step.CUT_OVER, Step.DRAIN, Step.FLUSH, Step.VERIFY)  # of others the entry is all


def story(entry: Entry) -> str | None:
    """One entry as a sentence; None for what only a restart needs.

    An entry that an earlier release wrote in another form is told as it is.
    """
    try:
        return _told(entry)
    except msgspec.ValidationError:
        return bytes(entry.body).decode()


def _told(entry: Entry) -> str | None:
    match entry.kind:
        case kind if kind == STATE_KIND:
            state = entry.read_as(SavedState).state
            return f"{state.shown}, A at {state.share} %: {'; '.join(state.reasons)}"
        case kind if kind == KIND:
            return _step(entry.read_as(Record))
        case kind if kind in ladder_events.KINDS:
            return ladder_events.told(ladder_events.read(entry))
        case kind if kind == MODE:
            return f"the ladder is {entry.read_as(ModeSet).mode}"
        case kind if kind == NEWS:
            return _news(entry.read_as(AlertNews))
        case kind if kind == SOURCE:
            changed = entry.read_as(SourceChanged)
            return f"the rules are evaluated by {changed.source} now, by {changed.before} no longer"
        case kind if kind in (EVIDENCE_KIND, POSITIONS):
            return None
        case _:
            return bytes(entry.body).decode()


def _news(news: AlertNews) -> str:
    who = " of ".join(part for part in (news.alert, news.version) if part)
    for_s = max(0.0, news.heard_at - news.starts_at)
    return f"{who} is {news.state}, says {news.source} (it began {for_s:.1f} s before)"


def _step(record: Record) -> str | None:
    """A step as it was proved or failed; that it was begun is the restart's business."""
    if record.stage is Stage.BEGUN:
        return None
    if record.stage is Stage.FAILED:
        return f"ROLLBACK_INCOMPLETE at {record.step}: {record.progress.failure}"
    took_s = record.took_s if record.step in _WORK else None
    took = "" if took_s is None else f" in {_span(took_s)}"
    return f"{record.step} proved{took}{_proof(record)}"


def _span(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"


def _proof(record: Record) -> str:
    progress = record.progress
    match record.step:
        case Step.CUT_OVER:
            return f": A at 0 % since route epoch {progress.route_epoch}"
        case Step.DRAIN if (drained := progress.drained) is not None:
            return (
                f": {drained.finished} finished, {drained.replayed} replayed on B, "
                f"{drained.aborted} aborted{_unkept(drained)}"
            )
        case Step.FLUSH if (receipt := progress.receipt) is not None:
            return (
                f": {receipt.pages} pages, {receipt.bytes / 1e6:.2f} MB, "
                f"pool epoch {receipt.old_epoch} -> {receipt.new_epoch}"
            )
        case Step.VERIFY if progress.probe is not None:
            return f": {progress.probe.detail}"
        case Step.QUARANTINE:
            return f": {progress.order.identity}"
        case _:
            return ""


def _unkept(drained: DrainReport) -> str:
    return f" ({drained.unkept} as too large to be kept for a replay)" if drained.unkept else ""
