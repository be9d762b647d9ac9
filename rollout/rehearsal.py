"""Proves the alarm path before A has traffic: a rehearsed breach must come back and be called.

The data plane puts marked requests with a hard fault into the evidence log. They have to come by
the very long poll that judges A, and a scratch copy of A's tests has to call a breach on them, in
time. Nothing of it counts: it is operator traffic to everybody else.
"""

from collections.abc import Iterable

import msgspec

from monitors.contract import Count, Epoch, Evidence, Wire
from monitors.preparing import RehearsalOrder
from rollout.fold import EvidenceFold
from rollout.plan import RolloutPlan
from rollout.sequential import LineTest, Verdict

_MOST = 1_000  # requests of one rehearsal


class AlarmProof(Wire, frozen=True):
    """A rehearsed breach that was called. `seconds`: from its order on."""

    rehearsal: str
    requests: Count
    seconds: float

    @property
    def words(self) -> str:
        """The proof as a sentence."""
        return (
            f"the alarm path is proved: {self.requests} rehearsed faults on A were called a "
            f"breach within {self.seconds:.2f} s"
        )


class Rehearsal:
    """One attempt. `rehearsal`: its id; `now`: monotonic seconds, when it is ordered."""

    def __init__(self, plan: RolloutPlan, rehearsal: str, now: float, within_s: float) -> None:
        self.id = rehearsal
        self.proof: AlarmProof | None = None
        self.failure: str | None = None
        self._requests = requests_for_breach(plan)
        self._scratch = EvidenceFold(plan, warm_from=0)
        self._scratch.judge_from(0)
        self._began, self._within_s = now, within_s
        self._came = 0

    def order(self, leader_epoch: Epoch) -> RehearsalOrder:
        return RehearsalOrder(leader_epoch=leader_epoch, rehearsal=self.id, requests=self._requests)

    @property
    def ended(self) -> bool:
        return self.proof is not None or self.failure is not None

    def take(self, entries: Iterable[Evidence], now: float) -> None:
        """What the evidence log brought; only this rehearsal's own entries matter."""
        own = [entry for entry in entries if entry.rehearsal == self.id]
        if self.ended or not own:
            return
        if not all(entry.operator for entry in own):
            self.fail("its entries are not marked, so that they would count as A's")
            return
        self._came += len(own)
        self._scratch.take(
            msgspec.structs.replace(entry, operator=False, rehearsal="") for entry in own
        )
        if self._scratch.judgement().verdict is Verdict.BREACH:
            self.proof = AlarmProof(
                rehearsal=self.id, requests=self._requests, seconds=now - self._began
            )

    def look(self, now: float) -> None:
        """Whether its time is over."""
        if not self.ended and now - self._began > self._within_s:
            what = "no entry" if not self._came else f"{self._came} entries and no breach"
            self.fail(
                f"of {self._requests} rehearsed faults {what} came back within {self._within_s:g} s"
            )

    def fail(self, why: str) -> None:
        """It proves nothing; another one may."""
        self.failure = self.failure or why


def requests_for_breach(plan: RolloutPlan) -> int:
    """How many faulty requests in a row, each of another session, are a breach of `plan`."""
    test = LineTest(plan.faults)
    for number in range(1, _MOST):
        test.observe(1.0, f"rehearsed {number}", counts_as_health=False)
        if test.verdict is Verdict.BREACH:
            return number
    return _MOST
