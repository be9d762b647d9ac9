"""The journal: every decision of the control plane, durable before it acts; and who leads.

In a SQLite file, or in PostgreSQL where control planes of several machines share it. Entries are
only ever appended: triggers refuse the rest, and a leader that has been superseded is refused too.
Beside them lies what a successor must know and what is no decision: of each such thing the newest
alone. Safe to call from several threads.
"""

import re
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from monitors.contract import Epoch, Wire
from monitors.journal_sqlite import SqliteStore
from monitors.journal_store import Db, JournalInDoubt, Store
from monitors.journal_store import JournalUnwritable as JournalUnwritable

T = TypeVar("T")

_NEWEST_EPOCH = """
SELECT max(epoch) FROM (
    SELECT epoch FROM lease
    UNION ALL
    SELECT * FROM (SELECT leader_epoch FROM entries ORDER BY id DESC LIMIT 1) AS newest
) AS leaders
"""
_INSERT = """
INSERT INTO entries (id, wall, leader_epoch, actor, kind, body)
SELECT coalesce(max(id), 0) + 1, ?, ?, ?, ?, ? FROM entries RETURNING id
"""
_SAME = """
SELECT id FROM entries WHERE wall = ? AND leader_epoch = ? AND actor = ? AND kind = ? AND body = ?
"""
_Row = tuple[float, int, str, str, str]  # all columns but the id
_COLUMNS = "id, wall, leader_epoch, actor, kind, body"
_FILE = "sqlite:///"
_SERVER = re.compile(r"postgres(ql)?(\+psycopg)?://")


class JournalUrlError(ValueError):
    """A URL of no store there is; the message says which there are, and shows no password."""


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
    """Append and read entries. `where`: as `open_store` takes it, with the same errors."""

    def __init__(self, where: Path | str, wall: Callable[[], float] = time.time) -> None:
        self._store = open_store(where)
        self._wall = wall
        self._doubtful: dict[str, _Row] = {}  # the last one of a kind, where it may be written

    def append(
        self, kind: str, actor: str, body: Wire | Mapping[str, object], leader_epoch: int
    ) -> Entry:
        """Write one entry; it is durable when this returns.

        Raises `StaleLeader` when `leader_epoch` is older than the newest one there, and
        `JournalUnwritable` when the disk is full, read-only or broken, or the server is away. One
        that was written all the same, but not acknowledged, is not written twice by trying again,
        unless another one of its kind was written since: then it is a decision of its own.
        """
        row = (self._wall(), leader_epoch, actor, kind, msgspec.json.encode(body).decode())
        doubtful = self._doubtful.get(kind)
        try:
            with self._leading(leader_epoch) as db:
                found = None
                if doubtful is not None and doubtful[1:] == row[1:]:
                    found = db.execute(_SAME, doubtful).fetchone()
                    row = doubtful if found else row
                entry_id: int = (found or db.execute(_INSERT, row).fetchone())[0]
        except JournalInDoubt:
            self._doubtful[kind] = row
            raise
        self._doubtful.pop(kind, None)
        return _entry((entry_id, *row))

    def remember(self, name: str, body: Wire, leader_epoch: int) -> None:
        """Keep `body` under a name, in place of what was kept there. Raises as `append` does."""
        with self._leading(leader_epoch) as db:
            db.execute(
                "INSERT INTO memories (name, body) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                (name, msgspec.json.encode(body).decode()),
            )

    def remembered(self, name: str, body_type: type[T]) -> T | None:
        """What is kept under a name; None: nothing is. Raises `msgspec.ValidationError` when it is
        no `body_type`."""
        rows = self._store.rows("SELECT body FROM memories WHERE name = ?", (name,))
        return msgspec.json.decode(rows[0][0], type=body_type) if rows else None

    def read(
        self, after: int = 0, kinds: Collection[str] | None = None, limit: int | None = 1_000
    ) -> list[Entry]:
        """Up to `limit` entries with an id later than `after`, oldest first; None: all of them.

        `kinds` None is every kind; an empty collection is none.
        """
        if kinds is not None and not kinds:
            return []
        among = "" if kinds is None else f" AND kind IN ({_marks(kinds)})"
        most = "" if limit is None else " LIMIT ?"
        values = (after, *(kinds or ()), *(() if limit is None else (limit,)))
        query = f"SELECT {_COLUMNS} FROM entries WHERE id > ?{among} ORDER BY id{most}"
        return [_entry(row) for row in self._store.rows(query, values)]

    def newest(self, limit: int, without: Collection[str] = ()) -> list[Entry]:
        """The last `limit` entries, oldest first, but for those of the kinds `without`."""
        where = f" WHERE kind NOT IN ({_marks(without)})" if without else ""
        query = f"SELECT {_COLUMNS} FROM entries{where} ORDER BY id DESC LIMIT ?"
        return [_entry(row) for row in reversed(self._store.rows(query, (*without, limit)))]

    def last(self, kind: str) -> Entry | None:
        """The newest entry of a kind; None when there is none."""
        query = f"SELECT {_COLUMNS} FROM entries WHERE kind = ? ORDER BY id DESC LIMIT 1"
        rows = self._store.rows(query, (kind,))
        return _entry(rows[0]) if rows else None

    def newest_epoch(self) -> int:
        """The newest leader epoch in it; 0 before the first leader."""
        return self._store.rows(_NEWEST_EPOCH)[0][0]

    def close(self) -> None:
        """A closed journal is not used again."""
        self._store.close()

    @contextmanager
    def _leading(self, leader_epoch: int) -> Generator[Db]:
        """A transaction of the newest leader's. Raises `StaleLeader` for any other's."""
        with self._store.transaction() as db:
            newest: int = db.execute(_NEWEST_EPOCH).fetchone()[0]
            if leader_epoch < newest:
                raise StaleLeader(f"leader epoch {leader_epoch} is over: {newest} leads now")
            yield db


class LeaderLease:
    """Who leads, beside the journal. Every leadership has an epoch of its own.

    The calendar clock only decides when a silent holder may be replaced. Each take-over raises
    the epoch inside one transaction, so however clocks jump no epoch ever has two leaders, and
    the older one's writes are refused (`StaleLeader`, and the data planes' own check).
    `holder` must name one process at a time: its next acquire replaces it without waiting.
    `wall` None: the store's clock, so that machines whose clocks differ agree.
    """

    def __init__(
        self,
        where: Path | str,
        holder: str,
        ttl_s: float,
        wall: Callable[[], float] | None = None,
    ) -> None:
        if not holder or ttl_s <= 0.0:
            raise ValueError("a leader lease needs a holder's name and a ttl_s above 0")
        self._store = open_store(where)
        self._holder = holder
        self._ttl_s = ttl_s
        self._wall = wall
        self._epoch: int | None = None

    def acquire(self, above: int = 0) -> int | None:
        """Lead under a new epoch, or None while another live holder leads.

        The epoch is larger than any in the journal, and than `above`: a data plane remembers
        leaders that a journal which was lost or restored does not. A lease renewed "in the
        future" is as dead as one not renewed for its `ttl_s`: the clock was set back.
        """
        with self._store.transaction() as db:
            holder, renewed, ttl_s = db.execute(
                "SELECT holder, renewed_wall, ttl_s FROM lease"
            ).fetchone()
            now = self._now(db)
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
        kept = self._update("renewed_wall = ?", self._now)
        if not kept:
            self._epoch = None
        return kept

    def is_held(self) -> bool:
        """Whether nobody has taken over, read without writing: for a disk that takes no write.

        Raises `JournalUnwritable` where nobody can tell.
        """
        rows = self._store.rows("SELECT epoch, holder FROM lease")
        return rows == [(self._epoch, self._holder)]

    def release(self) -> None:
        """Step down at once, if still leader; the epoch stays used up."""
        self._update("holder = ?", lambda _: None)
        self._epoch = None

    def close(self) -> None:
        """Without stepping down."""
        self._store.close()

    def _now(self, db: Db) -> float:
        return self._store.wall(db) if self._wall is None else self._wall()

    def _update(self, assignment: str, value: Callable[[Db], object]) -> bool:
        if self._epoch is None:
            return False
        with self._store.transaction() as db:
            changed = db.execute(
                f"UPDATE lease SET {assignment} WHERE epoch = ? AND holder = ?",
                (value(db), self._epoch, self._holder),
            )
            return changed.rowcount == 1


def open_store(where: Path | str) -> Store:
    """The store of a SQLite file, or of a URL as SQLAlchemy writes them: `sqlite:///FILE`,
    `postgresql://USER:PASSWORD@HOST/DATABASE`.

    Raises `JournalUnwritable` where it cannot be opened and `JournalUrlError` for other URLs.
    """
    if isinstance(where, Path):
        return SqliteStore(where)
    if where.startswith(_FILE):
        return SqliteStore(Path(where.removeprefix(_FILE)))
    if _SERVER.match(where) is None:
        scheme = where.partition("://")[0] if "://" in where else "none"
        raise JournalUrlError(
            f"the journal's URL has the scheme {scheme!r}: give {_FILE}FILE, or "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    from monitors.journal_postgres import PostgresStore  # most have no need of its driver

    return PostgresStore(_SERVER.sub("postgresql://", where, count=1))


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


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
