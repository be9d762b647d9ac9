"""What is known of one version: its ladder, its loads, and what of both a successor would know."""

from collections.abc import Collection
from dataclasses import dataclass

from alerts.forecast import History, Load, kept_s
from alerts.ladder import Event, Ladder, Move, Peak, rebuild
from alerts.parts import LOAD_PARTS
from monitors.journal import Journal
from monitors.redlines import LadderLines, RedLines
from redline.control.ladder_events import KINDS, read

# So much higher than what is journalled: a load that a successor must be told of. One that still
# rises is seen by it, too.
_HIGHER, _HIGHER_YET = 1.05, 1.1
_PAST_S = 60.0
_PAGE = 1_000  # entries that are in memory at once


@dataclass
class Book:
    """One version's. `told`: its loads as far as the journal has them; `would`: what a dry run
    would do now."""

    ladder: Ladder
    history: History
    told: History
    would: tuple[Move, ...] = ()

    def take(self, event: Event, lines: LadderLines) -> None:
        """An event that is journalled, or waits to be."""
        self.ladder = self.ladder.after(event, lines)
        per_s = _load_of(event)
        if per_s:
            self.told = self.told.knowing(event.at, per_s, kept_s(lines))

    def note(self, at: float, load: Load, lines: LadderLines) -> None:
        """One more look at it."""
        self.history = self.history.noted(at, load, kept_s(lines))

    def untold(self, now: float, lines: LadderLines) -> Peak | None:
        """A load that a rung has to be given back to and that a successor would not know of. It is
        the highest of a while, so that these are a few an hour."""
        stairs = [self.ladder.stairs[part] for part in LOAD_PARTS]
        if not any(stair.rung for stair in stairs):
            return None
        memory_s = lines.memory_s * max(stair.patience(lines) for stair in stairs)
        behind_s = _behind_s(lines)
        for at, per_s in self.history.peaks:
            age_s = now - at
            known = self.told.peak(now, age_s + behind_s)
            higher = _HIGHER if age_s >= _PAST_S else _HIGHER_YET
            if age_s <= memory_s and (known is None or per_s > higher * known):
                return self._highest(now, age_s + behind_s / 2)
        return None

    def _highest(self, now: float, memory_s: float) -> Peak:
        at, per_s = next(peak for peak in self.history.peaks if now - peak[0] <= memory_s)
        return Peak(at=at, version=self.ladder.version, per_s=per_s)


def recall(
    journal: Journal, versions: Collection[str], now: float, lines: RedLines
) -> dict[str, Book]:
    """The books of these versions as the journal has them. It reads all of it, which takes a while:
    nothing for an event loop. Raises `JournalUnwritable` where it cannot be read."""
    books = {
        version: Book(rebuild(version, (), now, lines.ladder), History(), History())
        for version in versions
    }
    last = 0
    while entries := journal.read(after=last, kinds=list(KINDS), limit=_PAGE):
        for event in map(read, entries):
            if event.version in books:
                books[event.version].take(event, lines.ladder)
        last = entries[-1].id
    for book in books.values():
        for at, per_s in book.told.peaks:
            latest = min(at + _behind_s(lines.ladder), now)
            book.history = book.history.knowing(latest, per_s, kept_s(lines.ladder))
    return books


def _behind_s(lines: LadderLines) -> float:
    """How much later than the journal says a load may have been there again: a successor takes it
    for as late."""
    return lines.memory_s / 2


def _load_of(event: Event) -> float | None:
    """The requests a second that it tells of."""
    match event:
        case Peak():
            return event.per_s
        case Move():
            return event.seen.per_s
        case _:
            return None
