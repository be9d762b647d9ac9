"""A journal in one SQLite file (WAL, synchronous=FULL), for control planes of one machine."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monitors.journal_store import Db, JournalUnwritable

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


class SqliteStore:
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
        """On disk when it ends."""
        with self._lock, self._in_words():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:  # it failed, and SQLite has not undone it already
                    self._db.execute("ROLLBACK")

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._reading, self._in_words():
            return self._reader.execute(query, values).fetchall()

    def wall(self, db: Db) -> float:
        """The machine's: a file has one."""
        return time.time()

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
