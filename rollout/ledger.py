"""The journal as a rollout writes it: forward moves need it, moves toward B never wait for it."""

from typing import Protocol

from monitors.contract import Wire
from monitors.journal import Entry, JournalUnwritable


class JournalFile(Protocol):
    """What is needed of `monitors.journal.Journal`."""

    def append(self, kind: str, actor: str, body: Wire, leader_epoch: int) -> Entry: ...
    def last(self, kind: str) -> Entry | None: ...


class Ledger:
    """Writes in order. Entries that could not be written wait here, and go before any later one.

    Every method raises `StaleLeader` when another leads: then nothing may be done any more.
    """

    def __init__(self, journal: JournalFile, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self._journal = journal
        self._waiting: list[tuple[str, str, Wire]] = []

    @property
    def behind(self) -> int:
        """How many entries are in memory alone, because the journal cannot be written."""
        return len(self._waiting)

    def write(self, kind: str, actor: str, body: Wire) -> None:
        """On disk when this returns. Raises `JournalUnwritable`: do not do what it tells of."""
        self.catch_up()
        self._journal.append(kind, actor, body, self.leader_epoch)

    def write_or_keep(self, kind: str, actor: str, body: Wire) -> None:
        """On disk now where that is possible, else as soon as it is: for moves toward B."""
        self._waiting.append((kind, actor, body))
        self.try_to_catch_up()

    def try_to_catch_up(self) -> None:
        """Write what waits, if that can be done now."""
        try:
            self.catch_up()
        except JournalUnwritable:
            return  # `behind` tells of it, and every forward move is refused meanwhile

    def catch_up(self) -> None:
        """Write what waits. Raises `JournalUnwritable` when that still cannot be."""
        while self._waiting:
            kind, actor, body = self._waiting[0]
            self._journal.append(kind, actor, body, self.leader_epoch)
            del self._waiting[0]

    def last(self, kind: str) -> Entry | None:
        return self._journal.last(kind)
