"""The journal keeps every acknowledged entry, in order, whatever happens to its writer or disk."""

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from monitors.contract import DrainMode, DrainOrder
from monitors.journal import Entry, Journal, JournalUnwritable, StaleLeader, open_store
from tests.unit.monitors.conftest import Fresh

ROOT = Path(__file__).parents[3]
NOBODY = 65_534
KINDS = ("phase", "ladder", "rollback")


@contextmanager
def journal(where: Path | str) -> Iterator[Journal]:
    with closing(Journal(where, wall=lambda: 1_700_000_000.25)) as opened:
        yield opened


def write(opened: Journal, kind: str, number: int, epoch: int = 1) -> Entry:
    return opened.append(kind, "test", {"number": number}, epoch)


def test_an_entry_is_there_after_reopening(where: Path | str) -> None:
    order = DrainOrder(leader_epoch=4, mode=DrainMode.ABORT, timeout_s=3.0)
    with journal(where) as opened:
        written = opened.append("drain", "controller", order, leader_epoch=4)
    with journal(where) as opened:
        (entry,) = opened.read()
    assert entry == written
    assert (entry.id, entry.wall, entry.leader_epoch) == (1, 1_700_000_000.25, 4)
    assert entry.read_as(DrainOrder) == order


def test_an_entry_shows_its_body_as_json(where: Path | str) -> None:
    with journal(where) as opened:
        entry = write(opened, "phase", 7)
    assert msgspec.json.decode(msgspec.json.encode(entry))["body"] == {"number": 7}


@pytest.mark.parametrize("statement", ["UPDATE entries SET kind = 'x'", "DELETE FROM entries"])
def test_what_is_written_can_be_neither_changed_nor_deleted(
    where: Path | str, statement: str
) -> None:
    with journal(where) as opened, closing(open_store(where)) as intruder:
        written = write(opened, "phase", 1)
        with pytest.raises(JournalUnwritable, match="append-only"), intruder.transaction() as db:
            db.execute(statement)
        assert opened.read() == [written]


def test_a_superseded_leader_is_refused_and_leaves_no_trace(where: Path | str) -> None:
    with journal(where) as opened:
        write(opened, "phase", 1, epoch=5)
        with pytest.raises(StaleLeader, match="5 leads now"):
            write(opened, "phase", 2, epoch=4)
        write(opened, "phase", 3, epoch=5)
        assert [entry.id for entry in opened.read()] == [1, 2]
        assert opened.newest_epoch() == 5


def test_of_what_is_remembered_the_newest_alone_is_kept_and_no_entry_tells_of_it(
    where: Path | str,
) -> None:
    first = DrainOrder(leader_epoch=4, mode=DrainMode.ABORT, timeout_s=3.0)
    newest = msgspec.structs.replace(first, timeout_s=4.0)
    with journal(where) as opened:
        assert opened.remembered("drain", DrainOrder) is None
        opened.remember("drain", first, leader_epoch=4)
        opened.remember("another", first, leader_epoch=4)
        opened.remember("drain", newest, leader_epoch=4)
    with journal(where) as opened:
        assert opened.remembered("drain", DrainOrder) == newest
        assert opened.remembered("another", DrainOrder) == first
        assert opened.read() == []


def test_a_superseded_leader_changes_nothing_that_is_remembered(where: Path | str) -> None:
    order = DrainOrder(leader_epoch=5, mode=DrainMode.ABORT, timeout_s=3.0)
    with journal(where) as opened:
        write(opened, "phase", 1, epoch=5)
        opened.remember("drain", order, leader_epoch=5)
        with pytest.raises(StaleLeader, match="5 leads now"):
            opened.remember("drain", msgspec.structs.replace(order, timeout_s=4.0), leader_epoch=4)
        assert opened.remembered("drain", DrainOrder) == order


def test_without_a_limit_every_entry_is_read(where: Path | str) -> None:
    with journal(where) as opened:
        for number in range(5):
            write(opened, "phase", number)
        assert [entry.id for entry in opened.read(limit=2)] == [1, 2]
        assert len(opened.read(limit=None)) == 5
        assert opened.read(limit=0) == []


def test_a_long_read_makes_no_write_wait(tmp_path: Path) -> None:
    connections: list[sqlite3.Connection] = []
    real = sqlite3.connect

    def kept(*args: object, **kwargs: object) -> sqlite3.Connection:
        connections.append(real(*args, **kwargs))  # pyright: ignore
        return connections[-1]

    reading, go_on = threading.Event(), threading.Event()

    def pause() -> int:
        reading.set()
        return not go_on.wait(30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", kept)
        with journal(tmp_path / "j.db") as opened, ThreadPoolExecutor(2) as pool:
            write(opened, "phase", 1)
            for connection in connections[1:] or connections:
                connection.set_progress_handler(pause, 1)
            entries = pool.submit(opened.read)
            try:
                assert reading.wait(10)
                assert pool.submit(write, opened, "phase", 2).result(10).id == 2
            finally:
                go_on.set()
            assert len(entries.result(10)) >= 1


def test_no_kinds_is_nothing_and_not_everything(where: Path | str) -> None:
    with journal(where) as opened:
        write(opened, "phase", 1)
        assert opened.read(kinds=()) == []
        assert len(opened.read(kinds=None)) == 1


def test_the_newest_come_oldest_first_without_the_kinds_left_out(where: Path | str) -> None:
    with journal(where) as opened:
        for number in range(6):
            write(opened, KINDS[number % 3], number)
        ids = [entry.id for entry in opened.newest(3, without=("ladder",))]
        assert ids == [3, 4, 6]
        assert [entry.id for entry in opened.newest(2)] == [5, 6]


def test_threads_append_side_by_side(where: Path | str) -> None:
    with journal(where) as opened, ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda n: write(opened, "phase", n).id, range(60)))
        assert sorted(ids) == list(range(1, 61))
        assert {entry.id: entry.body for entry in opened.read()} == {
            entry_id: msgspec.Raw(f'{{"number":{n}}}') for n, entry_id in enumerate(ids)
        }


def test_synchronous_full_and_wal_are_really_on(tmp_path: Path) -> None:
    """Without FULL a power cut may take acknowledged entries with it; kill -9 would not show it."""
    path = tmp_path / "j.db"
    statements: list[str] = []
    real = sqlite3.connect

    def traced(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = real(*args, **kwargs)  # pyright: ignore
        connection.set_trace_callback(statements.append)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", traced)
        with journal(path):
            pass
    assert "PRAGMA synchronous = FULL" in statements
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---------------------------------------------------------------- a disk that will not take it
@contextmanager
def as_somebody_without_rights() -> Iterator[None]:
    """Root writes through any permission, so it steps down; others have none to begin with."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_read_only_folder_is_said_in_words_and_loses_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.db"
        with journal(path) as opened:
            write(opened, "phase", 1)
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        with as_somebody_without_rights(), pytest.raises(JournalUnwritable, match="writable"):
            Journal(path)
        Path(folder).chmod(0o755)
        path.chmod(0o644)
        with journal(path) as opened:
            assert len(opened.read()) == 1


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_text("this is a text file " * 100)
    with pytest.raises(JournalUnwritable, match="not a database"):
        Journal(path)


def test_a_folder_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(JournalUnwritable, match="No such file"):
        Journal(tmp_path / "missing" / "j.db")


FULL_DISK = """
import resource, sys
from pathlib import Path
from typing import Any
from monitors.journal import Journal, JournalUnwritable

journal = Journal(Path(sys.argv[1]))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # no file may grow beyond this
kept = 0
try:
    for _ in range(1_000):
        journal.append("phase", "test", {"text": "x" * 2_000}, 1)
        kept += 1
except JournalUnwritable as err:
    print(kept, "then:", err, flush=True)
print(len(journal.read(limit=2_000)), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.append("phase", "test", {"text": "after"}, 1)
"""


def test_a_full_disk_is_said_in_words_and_the_journal_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    words, readable = done.stdout.splitlines()
    kept = int(words.split()[0])
    assert 0 < kept < 1_000
    assert "free disk space" in words
    assert int(readable) == kept
    with journal(path) as opened:
        assert len(opened.read(limit=2_000)) == kept + 1


# ---------------------------------------------------------------- kill -9
WRITER = """
import sys
from pathlib import Path
from typing import Any
from monitors.journal import Journal

journal = Journal(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1]))
while True:
    entry = journal.append("phase", "writer", {"padding": "x" * 20_000}, 1)
    print(entry.id, flush=True)
"""


def acknowledged_before_a_kill(where: Path | str, entries: int) -> list[int]:
    """Start a writer, kill it after about `entries` of its acknowledgements; all of them."""
    command = [sys.executable, "-c", WRITER, str(where)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(entries)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    return acknowledged


def test_kill_minus_nine_loses_no_acknowledged_entry(where: Path | str) -> None:
    chance = random.Random(7)
    acknowledged: list[int] = []
    for _ in range(8 if isinstance(where, Path) else 3):
        acknowledged += acknowledged_before_a_kill(where, chance.randint(1, 40))
        with journal(where) as opened:
            ids = [entry.id for entry in opened.read(limit=10_000)]
        assert ids == list(range(1, len(ids) + 1))
        assert set(acknowledged) <= set(ids)
        if isinstance(where, str):
            continue
        with closing(sqlite3.connect(where)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# ---------------------------------------------------------------- against a plain list
class JournalMachine(RuleBasedStateMachine):
    """Any order of appends, refusals and reopenings equals the same done to a list."""

    def __init__(self, where: Path | str) -> None:
        super().__init__()
        self.where = where
        self.journal = Journal(where, wall=lambda: 0.0)
        self.model: list[Entry] = []

    @property
    def newest(self) -> int:
        return self.model[-1].leader_epoch if self.model else 0

    @rule(kind=st.sampled_from(KINDS), raised=st.integers(0, 2), number=st.integers())
    def append(self, kind: str, raised: int, number: int) -> None:
        number %= 2**63  # JSON integers that SQLite and msgspec both take
        self.model.append(write(self.journal, kind, number, self.newest + raised))

    @precondition(lambda self: self.newest > 0)
    @rule(kind=st.sampled_from(KINDS))
    def append_as_stale_leader(self, kind: str) -> None:
        with pytest.raises(StaleLeader):
            write(self.journal, kind, 0, self.newest - 1)

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal(self.where, wall=lambda: 0.0)

    @rule(after=st.integers(0, 30), kinds=st.none() | st.sets(st.sampled_from(KINDS)))
    def read(self, after: int, kinds: set[str] | None) -> None:
        wanted = [e for e in self.model if e.id > after and (kinds is None or e.kind in kinds)]
        assert self.journal.read(after, kinds) == wanted
        assert self.journal.read(after, kinds, limit=3) == wanted[:3]

    @invariant()
    def the_last_of_each_kind_is_found(self) -> None:
        for kind in KINDS:
            of_kind = [entry for entry in self.model if entry.kind == kind]
            assert self.journal.last(kind) == (of_kind[-1] if of_kind else None)

    def teardown(self) -> None:
        self.journal.close()


def test_any_order_of_calls_equals_the_same_done_to_a_list(fresh: Fresh) -> None:
    steps = settings(max_examples=8, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(lambda: JournalMachine(fresh()), settings=steps)  # pyright: ignore[reportArgumentType]
