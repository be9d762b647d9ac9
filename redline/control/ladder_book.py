"""What is known of one version: its ladder, its loads, and what of both a successor would know."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from alerts.forecast import SPAN_S, History, Load, kept_s
from alerts.ladder import Event, Ladder, Move, rebuild
from alerts.parts import LOAD_PARTS
from monitors.contract import Wire
from monitors.journal import Journal
from monitors.redlines import LadderLines, RedLines
from redline.control.ladder_events import KINDS, read

_PAGE = 1_000  # entries that are in memory at once

log = logging.getLogger(__name__)


class Loads(Wire, frozen=True):
    """The loads that a rung has to be given back to, as a `History` has them."""

    peaks: tuple[tuple[float, float], ...] = ()


@dataclass
class Book:
    """One version's. `would`: what a dry run would do now; `kept`: its loads as a successor would
    know them since `kept_at`."""

    ladder: Ladder
    history: History
    would: tuple[Move, ...] = ()
    kept: Loads | None = None
    kept_at: float | None = None

    def take(self, event: Event, lines: LadderLines) -> None:
        """An event that is journalled, or waits to be."""
        self.ladder = self.ladder.after(event, lines)

    def note(self, at: float, load: Load, lines: LadderLines) -> None:
        """One more look at it."""
        self.history = self.history.noted(at, load, kept_s(lines))

    def is_behind(self, now: float) -> bool:
        """Whether a rung waits for loads that a successor would not know of, to within a span."""
        waits = any(self.ladder.stairs[part].rung for part in LOAD_PARTS)
        rested = self.kept_at is None or now - self.kept_at >= SPAN_S
        return waits and rested and self._loads() != self.kept

    def keep(self, journal: Journal, leader_epoch: int) -> None:
        """Let a successor know its loads. Raises as `Journal.remember` does."""
        loads = self._loads()
        journal.remember(_name(self.ladder.version), loads, leader_epoch)
        self.kept, self.kept_at = loads, self.history.at

    def _loads(self) -> Loads:
        return Loads(peaks=self.history.peaks)


def recall(
    journal: Journal, versions: Collection[str], now: float, lines: RedLines
) -> dict[str, Book]:
    """The books of these versions as the journal has them. It reads all of it, which takes a while:
    nothing for an event loop. Raises `JournalUnwritable` where it cannot be read, and
    `msgspec.DecodeError` for an event of another form: a ladder without it would be a wrong one."""
    books = {
        version: Book(rebuild(version, (), now, lines.ladder), History()) for version in versions
    }
    last = 0
    while entries := journal.read(after=last, kinds=list(KINDS), limit=_PAGE):
        for event in map(read, entries):
            if event.version in books:
                books[event.version].take(event, lines.ladder)
                _remind(books[event.version], _loads_of(event), now, lines.ladder)
        last = entries[-1].id
    for version, book in books.items():
        _remind(book, _kept(journal, version), now, lines.ladder)
    return books


def _kept(journal: Journal, version: str) -> Loads:
    """As a predecessor knew them; none that another release kept in another form."""
    try:
        return journal.remembered(_name(version), Loads) or Loads()
    except msgspec.DecodeError as err:
        log.warning("the loads of %s cannot be read, they are gathered anew: %s", version, err)
        return Loads()


def _remind(book: Book, loads: Loads, now: float, lines: LadderLines) -> None:
    """Of loads that were. One that lies ahead of `now` was just now: the clock was set back."""
    for at, per_s in loads.peaks:
        book.history = book.history.knowing(min(at, now), per_s, kept_s(lines))


def _loads_of(event: Event) -> Loads:
    """What it tells of them: the load that moved the first rung, before any was waited for."""
    if isinstance(event, Move) and event.seen.per_s:
        return Loads(peaks=((event.at, event.seen.per_s),))
    return Loads()


def _name(version: str) -> str:
    return f"ladder.loads {version}"
