"""However clocks jump and holders die, no leader epoch ever has two leaders."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from monitors.journal import Journal, LeaderLease, StaleLeader
from tests.unit.monitors.conftest import Fresh

ROOT = Path(__file__).parents[3]
TTL_S = 5.0


class Wall:
    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_one_leads_while_it_renews_and_the_other_after_its_silence(where: Path | str) -> None:
    wall = Wall()
    with (
        closing(LeaderLease(where, "one", TTL_S, wall)) as one,
        closing(LeaderLease(where, "two", TTL_S, wall)) as two,
    ):
        assert one.acquire() == 1
        wall.now += TTL_S - 0.1
        assert one.renew()
        wall.now += TTL_S - 0.1
        assert two.acquire() is None
        wall.now += 0.2
        assert two.acquire() == 2
        assert not one.renew()
        assert one.acquire() is None


def test_a_released_lease_is_free_at_once_under_a_new_epoch(where: Path | str) -> None:
    with (
        closing(LeaderLease(where, "one", TTL_S)) as one,
        closing(LeaderLease(where, "two", TTL_S)) as two,
    ):
        assert one.acquire() == 1
        one.release()
        assert two.acquire() == 2
        one.release()  # no longer its own: does nothing
        assert two.renew()


def test_whether_it_is_held_is_read_without_writing(where: Path | str) -> None:
    wall = Wall()
    with (
        closing(LeaderLease(where, "one", TTL_S, wall)) as one,
        closing(LeaderLease(where, "two", TTL_S, wall)) as two,
    ):
        assert not one.is_held()
        one.acquire()
        wall.now += TTL_S + 1.0  # it could not renew, and nobody wanted its place
        assert one.is_held()
        assert not two.is_held()
        two.acquire()
        assert two.is_held()
        assert not one.is_held()


def test_a_restarted_holder_takes_over_from_itself_without_waiting(where: Path | str) -> None:
    with (
        closing(LeaderLease(where, "one", TTL_S)) as before,
        closing(LeaderLease(where, "one", TTL_S)) as after,
    ):
        assert before.acquire() == 1
        assert after.acquire() == 2
        assert not before.renew()


def test_a_leader_writes_no_more_once_another_has_taken_over(where: Path | str) -> None:
    wall = Wall()
    with (
        closing(LeaderLease(where, "one", TTL_S, wall)) as one,
        closing(LeaderLease(where, "two", TTL_S, wall)) as two,
        closing(Journal(where)) as journal,
    ):
        old = one.acquire()
        assert old is not None
        wall.now += 3_600.0  # the clock is set forward; `one` is alive and knows nothing
        assert two.acquire() == 2
        with pytest.raises(StaleLeader):  # although `two` has written nothing yet
            journal.append("phase", "one", {}, old)


def test_a_clock_set_back_does_not_keep_a_dead_leader_in_office(where: Path | str) -> None:
    wall = Wall()
    with (
        closing(LeaderLease(where, "one", TTL_S, wall)) as one,
        closing(LeaderLease(where, "two", TTL_S, wall)) as two,
    ):
        assert one.acquire() == 1
        wall.now -= 86_400.0
        assert two.acquire() == 2


def test_the_epoch_is_above_what_a_data_plane_remembers(where: Path | str) -> None:
    with closing(LeaderLease(where, "one", TTL_S)) as one:
        assert one.acquire(above=41) == 42
        assert one.acquire(above=7) == 43


def test_the_epoch_goes_on_from_the_newest_in_the_journal(where: Path | str) -> None:
    with closing(Journal(where)) as journal, closing(LeaderLease(where, "one", TTL_S)) as one:
        journal.append("phase", "import", {}, 41)
        assert one.acquire() == 42


CANDIDATE = """
import sys
from pathlib import Path
from monitors.journal import Journal, LeaderLease

sys.stdin.readline()  # all start together
where = sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])
epoch = LeaderLease(where, sys.argv[2], 60.0).acquire()
Journal(where).read()
print(epoch)
"""


def test_of_candidates_that_create_the_file_together_one_leads(where: Path | str) -> None:
    candidates = [
        subprocess.Popen(
            [sys.executable, "-c", CANDIDATE, str(where), f"holder-{number}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for candidate in candidates:
        assert candidate.stdin is not None
        candidate.stdin.write("go\n")
        candidate.stdin.flush()
    answers = [candidate.communicate(timeout=60)[0].strip() for candidate in candidates]
    assert sorted(answers) == ["1", "None", "None", "None"]


@pytest.mark.parametrize(("holder", "ttl_s"), [("", 5.0), ("one", 0.0)])
def test_a_lease_without_holder_or_length_does_not_construct(
    where: Path | str, holder: str, ttl_s: float
) -> None:
    with pytest.raises(ValueError):
        LeaderLease(where, holder, ttl_s)


HOLDERS = ("one", "two", "three")


class LeaseMachine(RuleBasedStateMachine):
    """Three candidates, a clock that jumps anywhere: epochs are unique, one leader at a time."""

    def __init__(self, where: Path | str) -> None:
        super().__init__()
        self.wall = Wall()
        self.leases = {name: LeaderLease(where, name, TTL_S, self.wall) for name in HOLDERS}
        self.journal = Journal(where, self.wall)
        self.believes: dict[str, int] = {}  # what each candidate was told, and not yet untold
        self.leader: str | None = None
        self.newest = 0

    @rule(name=st.sampled_from(HOLDERS))
    def acquire(self, name: str) -> None:
        epoch = self.leases[name].acquire()
        if epoch is None:
            assert self.leader not in (None, name)
        else:
            assert epoch == self.newest + 1
            self.leader, self.newest, self.believes[name] = name, epoch, epoch

    @rule(name=st.sampled_from(HOLDERS))
    def renew(self, name: str) -> None:
        kept = self.leases[name].renew()
        assert kept == (self.leader == name and name in self.believes)
        if not kept:
            self.believes.pop(name, None)

    @rule(name=st.sampled_from(HOLDERS))
    def release(self, name: str) -> None:
        self.leases[name].release()
        self.believes.pop(name, None)
        if self.leader == name:
            self.leader = None

    @rule(seconds=st.sampled_from([0.5, 4.9, 5.1, -3.0, -86_400.0, 86_400.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.wall.now += seconds

    @rule(name=st.sampled_from(HOLDERS))
    def write(self, name: str) -> None:
        epoch = self.believes.get(name)
        if epoch is None:
            return
        if epoch == self.newest:
            self.journal.append("phase", name, {}, epoch)
        else:
            with pytest.raises(StaleLeader):
                self.journal.append("phase", name, {}, epoch)

    @invariant()
    def no_epoch_has_two_leaders(self) -> None:
        epochs = list(self.believes.values())
        assert len(set(epochs)) == len(epochs)
        assert self.journal.newest_epoch() == self.newest

    def teardown(self) -> None:
        for lease in self.leases.values():
            lease.close()
        self.journal.close()


def test_no_order_of_events_gives_an_epoch_two_leaders(fresh: Fresh) -> None:
    steps = settings(max_examples=10, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(lambda: LeaseMachine(fresh()), settings=steps)  # pyright: ignore[reportArgumentType]
