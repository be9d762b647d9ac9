"""A journal in PostgreSQL (14 or later), for control planes of several machines.

The lease's row is locked before anything else, so transactions come one after the other and an
entry's id is never smaller than one that was read before. A server that is away or hangs is an
error within seconds: no move toward the stable version may wait for it.
"""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from monitors.journal_store import Db, JournalInDoubt, JournalUnwritable

T = TypeVar("T")

_CONNECT_S = 2  # the least that libpq takes
_WRITE_S = 2.0  # of one statement, by the clock here: a server that hangs ends none itself
_READ_S = 10.0  # the same; a long journal is read whole, and no decision waits for that
_PAUSE_S, _PAUSES = 0.2, 5.0  # before it is asked again: so many times what it kept us waiting
_LONGEST_PAUSE_S = 10.0
_BUSY = frozenset({"55P03", "57014"})  # no lock, or no end, in time
_SESSION = """
SET synchronous_commit = on;
SET statement_timeout = {statement_ms};
SET lock_timeout = '1500ms';
SET idle_in_transaction_session_timeout = '1s';
"""  # the last one lets no process that was stopped in mid-transaction keep the others out
_TABLES = ("entries", "memories", "lease")
_MAKERS_LOCK = 7_305_442  # any number, the same for all who may create the tables
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id BIGINT PRIMARY KEY,
    wall DOUBLE PRECISION NOT NULL,
    leader_epoch BIGINT NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, id);
CREATE OR REPLACE FUNCTION entries_stay() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$;
CREATE OR REPLACE TRIGGER entries_never_change BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
FOR EACH STATEMENT EXECUTE FUNCTION entries_stay();
CREATE TABLE IF NOT EXISTS memories (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS lease (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch BIGINT NOT NULL,
    holder TEXT,
    renewed_wall DOUBLE PRECISION NOT NULL,
    ttl_s DOUBLE PRECISION NOT NULL
);
INSERT INTO lease VALUES (1, 0, NULL, 0.0, 0.0) ON CONFLICT DO NOTHING;
"""


class PostgresStore:
    """`url` as libpq takes it: `postgresql://USER:PASSWORD@HOST/DATABASE`, several hosts too.

    Connections are made again when they broke. Makes its tables where they are missing.
    """

    def __init__(self, url: str) -> None:
        try:
            named = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as err:
            raise JournalUnwritable(f"the journal's URL cannot be read: {err}") from err
        self._name = f"PostgreSQL {named.get('host', 'here')}/{named.get('dbname', '')}"
        self._writer, self._reader = _Line(url, _WRITE_S), _Line(url, _READ_S)
        with self._in_words(self._writer), self._writer.lock:
            _make_tables(self._writer.connected())

    @contextmanager
    def transaction(self) -> Generator[Db]:
        """On the server's disk, and on that of its synchronous standbys, when it ends."""
        with self._writer.lock, self._in_words(self._writer):
            try:
                self._writer.first("BEGIN; SELECT FROM lease FOR UPDATE")
                connection = self._writer.connected()
                yield _Transaction(connection)
            except BaseException:
                self._writer.undo()
                raise
            self._commit(connection)

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._reader.lock, self._in_words(self._reader):
            try:
                return self._reader.first(query, values).fetchall()
            except psycopg.Error:
                self._reader.undo()
                raise

    def wall(self, db: Db) -> float:
        """The server's: those of its clients' machines may differ by more than a lease."""
        return db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0]

    def close(self) -> None:
        for line in (self._writer, self._reader):
            with line.lock:
                line.drop()

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        try:
            _run(connection, "COMMIT")
        except psycopg.Error as err:
            self._writer.drop()
            if err.sqlstate is None:  # the server did not say that it failed
                raise JournalInDoubt(
                    f"{self._name}: lost while it was writing ({_line(err)})"
                ) from err
            raise

    @contextmanager
    def _in_words(self, line: "_Line") -> Generator[None]:
        """Ask only where there is hope, and time the asking."""
        began = line.patience.began(self._name)
        try:
            yield
        except JournalInDoubt as err:
            line.patience.failed(began, err)
            raise
        except psycopg.Error as err:
            if _is_away(err):
                line.patience.failed(began, err)
            raise JournalUnwritable(
                f"{self._name}: the journal cannot be written ({_line(err)}). Nothing in it"
                " is lost: bring the server back, with room on its disk, or correct the journal's"
                " URL, then try again."
            ) from err


def _is_away(error: psycopg.Error) -> bool:
    """Whether it was no answer in time, or that the server is going away."""
    state = error.sqlstate
    return state is None or state in _BUSY or state.startswith("57P")


def _line(error: Exception) -> str:
    """Its words in one line."""
    return " ".join(str(error).split())


class _Patience:
    """How soon a server that failed is asked again: not for long after it kept us waiting. Each
    line has its own: a long read that came to no end says nothing of what a decision would."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self._why = ""

    def began(self, name: str) -> float:
        """The monotonic time. Raises `JournalUnwritable` while there is no point in asking."""
        now = time.monotonic()
        if now < self._not_before:
            raise JournalUnwritable(f"{name}: the journal was out of reach just now ({self._why})")
        return now

    def failed(self, began: float, why: Exception) -> None:
        now = time.monotonic()
        pause_s = min(_LONGEST_PAUSE_S, max(_PAUSE_S, _PAUSES * (now - began)))
        self._not_before = now + pause_s
        self._why = _line(why)


class _Line:
    """One connection and its lock: a thread's statements are whole before the next one's begin."""

    def __init__(self, url: str, answer_s: float) -> None:
        self.lock = threading.Lock()
        self.patience = _Patience()
        self._url = url
        self._answer_s = answer_s
        self._connection: _Connection | None = None

    def connected(self) -> "_Connection":
        """The connection; a new one where there was none that works."""
        if self._connection is None or self._connection.closed:
            self._connection = _Connection.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_S
            )
            self._connection.answer_s = self._answer_s
            _run(self._connection, _SESSION.format(statement_ms=round(750 * self._answer_s)))
        return self._connection

    def first(self, query: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """A statement that may be said twice, as the first of a transaction or alone: a connection
        that broke while nobody used it, as when the server was started again, is no failure."""
        connection = self.connected()
        try:
            return _run(connection, query, values)
        except psycopg.OperationalError:
            if not connection.broken:
                raise
        return _run(self.connected(), query, values)

    def undo(self) -> None:
        """End what was begun, by dropping the connection where that is the only way."""
        try:
            if self._connection is not None and not self._connection.closed:
                _run(self._connection, "ROLLBACK")
        except psycopg.Error:
            self.drop()  # the server undoes what a lost connection had begun

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """Waits for no answer longer than `answer_s`: the server may be stopped, or out of reach."""

    answer_s = _WRITE_S

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status is TransactionStatus.ACTIVE:
                self.close()  # what it would answer later is no answer to anything
            raise


class _Transaction:
    """A connection with placeholders as all stores take them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, query: str, values: Sequence[object] = (), /) -> psycopg.Cursor[Any]:
        return _run(self._connection, query, values)


def _run(
    connection: psycopg.Connection[Any], query: str, values: Sequence[object] = ()
) -> psycopg.Cursor[Any]:
    if not values:
        return connection.execute(query.encode())
    return connection.execute(query.replace("?", "%s").encode(), values)


def _make_tables(connection: psycopg.Connection[Any]) -> None:
    """Those who find them need no right to create any."""
    if _run(connection, "SHOW fsync").fetchall() != [("on",)]:
        raise JournalUnwritable("fsync is off on the journal's server: it would lose decisions")
    there = ", ".join(f"to_regclass('{name}')" for name in _TABLES)
    if _run(connection, f"SELECT num_nulls({there})").fetchall() == [(0,)]:
        return
    with connection.transaction():  # the lock: makers side by side would be in each other's way
        _run(connection, f"SELECT pg_advisory_xact_lock({_MAKERS_LOCK})")
        _run(connection, _SCHEMA)
