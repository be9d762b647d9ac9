"""What only a server can do to a journal: go away, hang, lose an answer, or sit on a lock."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from monitors.evidence import Cursor
from monitors.journal import Journal, JournalUnwritable, JournalUrlError, LeaderLease, open_store
from monitors.journal_postgres import PostgresStore
from tests.support.postgres import Cluster

MOST_S = 8.0  # that anybody may be kept waiting: of answers that come in 2 s, on a busy machine


@pytest.fixture
def journal(postgres: Cluster) -> Iterator[Journal]:
    with closing(Journal(postgres.fresh())) as opened:
        yield opened


def write(opened: Journal, number: int) -> int:
    return opened.append("phase", "test", {"number": number}, 1).id


def write_again_and_again(opened: Journal, number: int) -> int:
    return again_and_again(lambda: write(opened, number))


def again_and_again(work: Callable[[], int]) -> int:
    """Until it is done: a server that failed is not asked for a moment."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return work()
        except JournalUnwritable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_a_server_that_was_away_goes_on_where_it_was(postgres: Cluster, journal: Journal) -> None:
    write(journal, 1)
    postgres.stop()
    try:
        for _ in range(3):
            with pytest.raises(JournalUnwritable, match=r"Nothing in it is lost|just now"):
                write(journal, 2)
        with pytest.raises(JournalUnwritable):
            journal.read()
    finally:
        postgres.start()
    assert write_again_and_again(journal, 3) == 2
    assert [entry.id for entry in journal.read()] == [1, 2]


def test_a_server_that_was_started_again_while_nobody_asked_is_not_noticed(
    postgres: Cluster, journal: Journal
) -> None:
    write(journal, 1)
    assert len(journal.read()) == 1
    postgres.stop()
    postgres.start()
    assert write(journal, 2) == 2
    assert len(journal.read()) == 2


def test_a_server_that_hangs_keeps_nobody_waiting_for_long(
    postgres: Cluster, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.journal_postgres._PAUSES", 0.5)
    write(journal, 1)
    with postgres.hanging():
        began = time.monotonic()
        for _ in range(20):  # the first one waits, and the others are told at once
            with pytest.raises(JournalUnwritable):
                write(journal, 2)
        assert time.monotonic() - began < MOST_S
    assert write_again_and_again(journal, 3) in (2, 3)


@contextmanager
def lost_answers(monkeypatch: pytest.MonkeyPatch, *, committed: bool = True) -> Iterator[None]:
    """The connection breaks at a commit: after it, or before the server heard of it."""
    commit = PostgresStore._commit

    def lose(store: PostgresStore, connection: psycopg.Connection[object]) -> None:
        real = connection.execute

        def answered_to_nobody(query: bytes) -> object:
            real(query if committed else b"ROLLBACK")
            raise psycopg.OperationalError("the connection is lost")

        with monkeypatch.context() as patch:
            patch.setattr(connection, "execute", answered_to_nobody)
            commit(store, connection)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore, "_commit", lose)
        yield


def test_a_read_that_takes_too_long_keeps_no_decision_from_being_written(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitors.journal_postgres._READ_S", 0.4)
    with closing(Journal(postgres.fresh())) as journal:
        for number in range(1, 4):
            with pytest.raises(JournalUnwritable):
                journal._store.rows("SELECT pg_sleep(10)")
            assert write(journal, number) == number


def test_a_lost_answer_to_a_commit_writes_nothing_twice(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(journal, 1)
    with lost_answers(monkeypatch):
        for _ in range(2):  # the answer to the look for it is lost as well
            with pytest.raises(JournalUnwritable, match="lost while it was writing"):
                write(journal, 2)
            monkeypatch.setattr("monitors.journal_postgres._Patience.began", lambda *_: 0.0)
    assert again_and_again(lambda: journal.append("other", "test", {}, 1).id) == 3
    assert write_again_and_again(journal, 2) == 2
    assert write_again_and_again(journal, 2) == 4  # the same once more, and meant
    assert [entry.read_as(dict).get("number") for entry in journal.read()] == [1, 2, None, 2]


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_that_was_given_up_in_doubt_is_not_the_same_one_taken_later(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """An unfreeze that looks failed, a freeze, an unfreeze: the last one holds after a restart."""
    with lost_answers(monkeypatch, committed=committed), pytest.raises(JournalUnwritable):
        write(journal, 1)
    write_again_and_again(journal, 2)
    write_again_and_again(journal, 1)
    numbers = [entry.read_as(dict)["number"] for entry in journal.read()]
    assert numbers == ([1, 2, 1] if committed else [2, 1])


def test_what_was_not_written_has_the_time_at_which_it_is(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((1.0, 2.0))
    with closing(Journal(postgres.fresh(), wall=lambda: next(times))) as journal:
        with lost_answers(monkeypatch, committed=False), pytest.raises(JournalUnwritable):
            write(journal, 1)
        monkeypatch.setattr("monitors.journal_postgres._Patience.began", lambda *_: 0.0)
        assert write(journal, 1) == 1
        assert [entry.wall for entry in journal.read()] == [2.0]


def test_a_commit_waits_for_the_disk_whatever_the_server_is_set_to(postgres: Cluster) -> None:
    with closing(open_store(postgres.fresh())) as store:
        for setting in ("synchronous_commit", "fsync"):
            with store.transaction() as db:
                assert db.execute(f"SHOW {setting}").fetchone() == ("on",)


def test_a_process_stopped_in_mid_transaction_does_not_keep_the_others_out(
    postgres: Cluster,
) -> None:
    url = postgres.fresh()
    with (
        closing(Journal(url)) as journal,
        psycopg.connect(url) as stopped,
        closing(LeaderLease(url, "one", 5.0)) as lease,
    ):
        stopped.execute("SET idle_in_transaction_session_timeout = '1s'")
        stopped.execute("SELECT FROM lease FOR UPDATE")
        assert write_again_and_again(journal, 1) == 1
        assert lease.acquire() == 2
        stopped.close()


def test_what_an_earlier_release_made_is_given_the_tables_that_it_lacks(
    postgres: Cluster,
) -> None:
    url = postgres.fresh()
    with closing(Journal(url)) as earlier:
        write(earlier, 1)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP TABLE memories")
    with closing(Journal(url)) as later:
        assert later.remembered("a name", Cursor) is None
        later.remember("a name", Cursor(seq=7), 1)
        assert later.remembered("a name", Cursor) == Cursor(seq=7)
        assert len(later.read()) == 1


def test_who_finds_all_tables_needs_no_right_to_make_any(postgres: Cluster) -> None:
    url = postgres.fresh()
    Journal(url).close()
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE user_{schema} LOGIN".encode())
        db.execute(f"GRANT USAGE ON SCHEMA {schema} TO user_{schema}".encode())
        tables = f"ALL TABLES IN SCHEMA {schema}"
        db.execute(f"GRANT SELECT, INSERT, UPDATE ON {tables} TO user_{schema}".encode())
    with closing(Journal(url.replace("//redline@", f"//user_{schema}@"))) as opened:
        assert write(opened, 1) == 1
        opened.remember("a name", Cursor(seq=7), 1)


def test_entries_cannot_be_truncated_either(postgres: Cluster) -> None:
    with (
        closing(open_store(postgres.fresh())) as store,
        pytest.raises(JournalUnwritable, match="append-only"),
        store.transaction() as db,
    ):
        db.execute("TRUNCATE entries")


def test_a_lease_goes_by_the_clock_of_the_server(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.fresh()
    with (
        closing(LeaderLease(url, "one", 60.0)) as one,
        closing(LeaderLease(url, "two", 60.0)) as two,
    ):
        assert one.acquire() == 1
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3_600.0)  # another machine's clock
        assert two.acquire() is None


def test_no_server_is_said_in_words_without_the_password() -> None:
    with pytest.raises(JournalUnwritable) as refused:
        Journal("postgresql://redline:hunter2@127.0.0.1:1/journal")
    assert "Nothing in it is lost" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_url_of_another_kind_is_refused_without_showing_it() -> None:
    for url in ("mysql://redline:hunter2@db/journal", "hunter2"):
        with pytest.raises(JournalUrlError, match="give sqlite:///FILE, or postgresql://") as no:
            open_store(url)
        assert "hunter2" not in str(no.value)


def test_the_form_with_the_driver_s_name_and_the_one_of_a_file_are_taken(
    postgres: Cluster, tmp_path: object
) -> None:
    url = postgres.fresh().replace("postgresql://", "postgresql+psycopg://")
    for where in (url, f"sqlite:///{tmp_path}/j.db"):
        with closing(Journal(where)) as opened:
            assert write(opened, 1) == 1
