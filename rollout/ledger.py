"""The journal as a rollout writes it: forward moves need it, moves toward B never wait for it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from monitors.contract import Wire
from monitors.journal import Entry, JournalUnwritable

T = TypeVar("T")


class JournalFile(Protocol):
    """What is needed of `monitors.journal.Journal`."""

    def append(self, kind: str, actor: str, body: Wire, leader_epoch: int) -> Entry: ...
    def last(self, kind: str) -> Entry | None: ...
    def remember(self, name: str, body: Wire, leader_epoch: int) -> None: ...
    def remembered(self, name: str, body_type: type[T]) -> T | None: ...


class Ledger:
    """Writes in order. Entries that could not be written wait here, and go before any later one.

    Every method raises `StaleLeader` when another leads: then nothing may be done any more.
    """

    def __init__(self, journal: JournalFile, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self._journal = journal
        self._waiting: list[tuple[str, str, Wire]] = []
        self._newest: dict[str, int] = {}  # ids, by kind

    @property
    def behind(self) -> int:
        """How many entries are in memory alone, because the journal cannot be written."""
        return len(self._waiting)

    def write(self, kind: str, actor: str, body: Wire) -> None:
        """On disk when this returns. Raises `JournalUnwritable`: do not do what it tells of."""
        self.catch_up()
        self._append(kind, actor, body)

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
            self._append(kind, actor, body)
            del self._waiting[0]

    def last(self, kind: str) -> Entry | None:
        entry = self._journal.last(kind)
        if entry is not None:
            self._newest[kind] = entry.id
        return entry

    def newest(self, kind: str) -> int:
        """The id of the newest entry of a kind that was written or read here; 0: there is none."""
        return self._newest.get(kind, 0)

    def remember(self, name: str, body: Callable[[], Wire]) -> None:
        """Keep this beside the journal, in place of what was kept under the name; asked for once
        nothing waits any more. Raises `JournalUnwritable`."""
        self.catch_up()
        self._journal.remember(name, body(), self.leader_epoch)

    def remembered(self, name: str, body_type: type[T]) -> T | None:
        """What is kept under a name. Raises `msgspec.ValidationError` for another form of it."""
        return self._journal.remembered(name, body_type)

    def _append(self, kind: str, actor: str, body: Wire) -> None:
        self._newest[kind] = self._journal.append(kind, actor, body, self.leader_epoch).id
