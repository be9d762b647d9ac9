"""The journal: every decision of the control plane, durable before it acts; and who leads.

One SQLite file (WAL, synchronous=FULL). Entries are only ever appended: triggers refuse the
rest, and a leader that has been superseded is refused too. Beside them lies what a successor must
know and what is no decision: of each such thing the newest alone. Safe to call from threads.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from monitors.contract import Epoch, Wire

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    wall REAL NOT NULL,
    leader_epoch INTEGER NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, id);
CREATE TRIGGER IF NOT EXISTS entries_never_change BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER IF NOT EXISTS entries_never_go BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TABLE IF NOT EXISTS memories (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS lease (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    holder TEXT,
    renewed_wall REAL NOT NULL,
    ttl_s REAL NOT NULL
) STRICT;
INSERT OR IGNORE INTO lease VALUES (1, 0, NULL, 0.0, 0.0);
"""
_NEWEST_EPOCH = """
SELECT max(epoch, coalesce((SELECT leader_epoch FROM entries ORDER BY id DESC LIMIT 1), 0))
FROM lease
"""
_COLUMNS = "id, wall, leader_epoch, actor, kind, body"
_ALL = -1  # a LIMIT below 0 is none


class JournalUnwritable(RuntimeError):
    """The file cannot be written; what is in it is untouched. The message says what to do."""


class StaleLeader(RuntimeError):
    """A newer leader has been here: the caller leads no more and must stop acting."""


class Entry(Wire, frozen=True):
    """One line of the journal. `body` is JSON; `wall` is calendar time, for people."""

    id: int
    wall: float
    leader_epoch: Epoch
    actor: str
    kind: str
    body: msgspec.Raw

    def read_as(self, body_type: type[T]) -> T:
        """The body as `body_type`. Raises `msgspec.ValidationError` when it is another one."""
        return msgspec.json.decode(self.body, type=body_type)


class Journal:
    """Append and read entries. Raises `JournalUnwritable` where the file cannot be opened."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._file = _File(path)
        self._wall = wall

    def append(
        self, kind: str, actor: str, body: Wire | Mapping[str, object], leader_epoch: int
    ) -> Entry:
        """Write one entry; it is on disk when this returns.

        Raises `StaleLeader` when `leader_epoch` is older than the newest one in the file, and
        `JournalUnwritable` when the disk is full, read-only or broken.
        """
        text = msgspec.json.encode(body).decode()
        row = (self._wall(), leader_epoch, actor, kind, text)
        with self._leading(leader_epoch) as db:
            cursor = db.execute(
                "INSERT INTO entries (wall, leader_epoch, actor, kind, body)"
                " VALUES (?, ?, ?, ?, ?) RETURNING id",
                row,
            )
            entry_id: int = cursor.fetchone()[0]
        return _entry((entry_id, *row))

    def remember(self, name: str, body: Wire, leader_epoch: int) -> None:
        """Keep `body` under a name, in place of what was kept there. Raises as `append` does."""
        with self._leading(leader_epoch) as db:
            db.execute(
                "INSERT INTO memories VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                (name, msgspec.json.encode(body).decode()),
            )

    def remembered(self, name: str, body_type: type[T]) -> T | None:
        """What is kept under a name; None: nothing is. Raises `msgspec.ValidationError` when it is
        no `body_type`."""
        rows = self._file.rows("SELECT body FROM memories WHERE name = ?", (name,))
        return msgspec.json.decode(rows[0][0], type=body_type) if rows else None

    def read(
        self, after: int = 0, kinds: Collection[str] | None = None, limit: int | None = 1_000
    ) -> list[Entry]:
        """Up to `limit` entries with an id later than `after`, oldest first; None: all of them.

        `kinds` None is every kind; an empty collection is none.
        """
        where, values = "", list[object]()
        if kinds is not None:
            where = f" AND kind IN ({', '.join('?' * len(kinds))})"
            values = list(kinds)
        query = f"SELECT {_COLUMNS} FROM entries WHERE id > ?{where} ORDER BY id LIMIT ?"
        most = _ALL if limit is None else limit
        return [_entry(row) for row in self._file.rows(query, (after, *values, most))]

    def newest(self, limit: int, without: Collection[str] = ()) -> list[Entry]:
        """The last `limit` entries, oldest first, but for those of the kinds `without`."""
        query = (
            f"SELECT {_COLUMNS} FROM entries WHERE kind NOT IN ({', '.join('?' * len(without))})"
            " ORDER BY id DESC LIMIT ?"
        )
        return [_entry(row) for row in reversed(self._file.rows(query, (*without, limit)))]

    def last(self, kind: str) -> Entry | None:
        """The newest entry of a kind; None when there is none."""
        query = f"SELECT {_COLUMNS} FROM entries WHERE kind = ? ORDER BY id DESC LIMIT 1"
        rows = self._file.rows(query, (kind,))
        return _entry(rows[0]) if rows else None

    def newest_epoch(self) -> int:
        """The newest leader epoch in the file; 0 before the first leader."""
        return self._file.rows(_NEWEST_EPOCH)[0][0]

    def close(self) -> None:
        """Close the file; a closed journal is not used again."""
        self._file.close()

    @contextmanager
    def _leading(self, leader_epoch: int) -> Generator[sqlite3.Connection]:
        """A transaction of the newest leader's. Raises `StaleLeader` for any other's."""
        with self._file.transaction() as db:
            newest: int = db.execute(_NEWEST_EPOCH).fetchone()[0]
            if leader_epoch < newest:
                raise StaleLeader(f"leader epoch {leader_epoch} is over: {newest} leads now")
            yield db


class LeaderLease:
    """Who leads, in the journal's file. Every leadership has an epoch of its own.

    The calendar clock only decides when a silent holder may be replaced. Each take-over raises
    the epoch inside one transaction, so however clocks jump no epoch ever has two leaders, and
    the older one's writes are refused (`StaleLeader`, and the data planes' own check).
    `holder` must name one process at a time: its next acquire replaces it without waiting.
    """

    def __init__(
        self, path: Path, holder: str, ttl_s: float, wall: Callable[[], float] = time.time
    ) -> None:
        if not holder or ttl_s <= 0.0:
            raise ValueError("a leader lease needs a holder's name and a ttl_s above 0")
        self._file = _File(path)
        self._holder = holder
        self._ttl_s = ttl_s
        self._wall = wall
        self._epoch: int | None = None

    def acquire(self, above: int = 0) -> int | None:
        """Lead under a new epoch, or None while another live holder leads.

        The epoch is larger than any in the file, and than `above`: a data plane remembers leaders
        that a journal which was lost or restored does not. A lease renewed "in the future" is as
        dead as one not renewed for its `ttl_s`: the clock was set back.
        """
        with self._file.transaction() as db:
            holder, renewed, ttl_s = db.execute(
                "SELECT holder, renewed_wall, ttl_s FROM lease"
            ).fetchone()
            now = self._wall()
            if holder not in (None, self._holder) and abs(now - renewed) < ttl_s:
                return None
            epoch: int = max(above, db.execute(_NEWEST_EPOCH).fetchone()[0]) + 1
            db.execute(
                "UPDATE lease SET epoch = ?, holder = ?, renewed_wall = ?, ttl_s = ?",
                (epoch, self._holder, now, self._ttl_s),
            )
        self._epoch = epoch
        return epoch

    def renew(self) -> bool:
        """Stay leader for another `ttl_s`; False when the lease is another's by now."""
        kept = self._update("renewed_wall = ?", self._wall())
        if not kept:
            self._epoch = None
        return kept

    def is_held(self) -> bool:
        """Whether nobody has taken over, by what the file says; for a disk that takes no write."""
        rows = self._file.rows("SELECT epoch, holder FROM lease")
        return rows == [(self._epoch, self._holder)]

    def release(self) -> None:
        """Step down at once, if still leader; the epoch stays used up."""
        self._update("holder = ?", None)
        self._epoch = None

    def close(self) -> None:
        """Close the file without stepping down."""
        self._file.close()

    def _update(self, assignment: str, value: object) -> bool:
        if self._epoch is None:
            return False
        with self._file.transaction() as db:
            changed = db.execute(
                f"UPDATE lease SET {assignment} WHERE epoch = ? AND holder = ?",
                (value, self._epoch, self._holder),
            )
            return changed.rowcount == 1


class _File:
    """A connection to write, with a lock: a thread's transaction is whole before the next one's
    starts. Another one to read, so that a long read makes no decision wait for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock, self._reading = threading.Lock(), threading.Lock()
        with self._in_words(), _alone_in(path.parent):
            self._db = _connect(path)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            self._reader = _connect(path)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """All of the block's writes, or none; on disk when it ends."""
        with self._lock, self._in_words():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:  # it failed, and SQLite has not undone it already
                    self._db.execute("ROLLBACK")

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        with self._reading:
            return self._reader.execute(query, values).fetchall()

    def close(self) -> None:
        with self._lock, self._reading:
            self._reader.close()
            self._db.close()

    @contextmanager
    def _in_words(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as err:
            raise JournalUnwritable(
                f"{self._path}: the journal cannot be written ({err}). Nothing in it is lost: free"
                " disk space or make the file and its folder writable, then try again."
            ) from err


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """One opener at a time: switching a new file to WAL fails at once where others are at it."""
    guard = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
    finally:
        os.close(guard)


def _entry(row: tuple[int, float, int, str, str, str]) -> Entry:
    entry_id, wall, leader_epoch, actor, kind, text = row
    return Entry(
        id=entry_id,
        wall=wall,
        leader_epoch=leader_epoch,
        actor=actor,
        kind=kind,
        body=msgspec.Raw(text),
    )
