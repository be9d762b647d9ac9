"""How a ladder stands, for those who look at it."""

from alerts.decide import foresee, holds
from alerts.forecast import History
from alerts.ladder import Ladder
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, Name, SessionClass
from monitors.redlines import RedLines
from redline.control.ladder_api import LadderStatus, PartStatus
from redline.control.ladder_book import Book
from redline.control.ladder_events import parts_held, rung_word


def view(resident: Name, book: Book, now: float, wall: float, lines: RedLines) -> LadderStatus:
    """The ladder of a resident's version at `now`, by the book's clock. The times in it are by the
    calendar's, which shows `wall` and may have been set since the book's began."""
    ladder = book.ladder
    wanted = {each: ladder.level_of(each, now) for each in ALL_CLASSES}
    level = wanted[SessionClass.INTERACTIVE]
    held, set_s = ladder.override, wall - now
    if held is not None:
        held = held.shifted(set_s) if now < held.until else None
    return LadderStatus(
        resident=resident,
        version=ladder.version,
        level=level,
        apart={each: other for each, other in wanted.items() if other != level},
        parts=tuple(_part(ladder, part, book.history, now, set_s, lines) for part in Part),
        override=held,
        held="" if held is None else parts_held(held),
        would=book.would,
    )


def _part(
    ladder: Ladder, part: Part, history: History, now: float, set_s: float, lines: RedLines
) -> PartStatus:
    stair = ladder.stairs[part]
    return PartStatus(
        part=part,
        rung=stair.rung,
        word=rung_word(part, stair.rung),
        since=None if stair.moved_at is None else stair.moved_at + set_s,
        why=stair.why,
        evidence=stair.evidence,
        dwell_left_s=_dwell_left(ladder, part, now) if stair.rung else 0.0,
        forecast=foresee(ladder, part, history, now, lines).what if stair.rung else "",
        holds=holds(ladder, part, history, now, lines) if stair.rung else (),
        moves_left=max(0, lines.ladder.moves_per_hour - stair.spent(now)),
    )


def _dwell_left(ladder: Ladder, part: Part, now: float) -> float:
    family = [ladder.stairs[each] for each in ladder.kin(part)]
    last = max(max(each.fired_at, each.moved_at or each.fired_at) for each in family)
    return max(0.0, last + ladder.stairs[part].dwell_s - now)
