"""What a controller has read of the evidence log: how far, how lately, and what it says of A."""

from collections.abc import Callable

from monitors.contract import EvidenceBatch
from rollout.fold import NOTHING_KNOWN, EvidenceFold, Judgement
from rollout.plan import Cause, RolloutPlan, cause_of
from rollout.rehearsal import AlarmProof, Rehearsal
from rollout.sequential import Numbers
from rollout.state import RolloutState
from rollout.store import Recovered
from rollout.traffic import Traffic

_UNDATED_S = 15.0  # of silence, after which nobody knows how old what comes is


class Reading:
    """Goes on where the journal says that the last controller stood.

    `share_s`: over how long residents' traffic is compared; `clock`: monotonic seconds.
    """

    def __init__(self, found: Recovered, share_s: float, clock: Callable[[], float]) -> None:
        self.cursor, self.fold = found.cursor, found.fold
        self.traffic = Traffic(share_s, clock)
        self.rehearsal: Rehearsal | None = None  # the newest, while the rollout prepares
        self.alarm_lack: str | None = None  # how the last rehearsal failed
        self._clock = clock
        self._answered = False
        self._heard = clock()  # a fresh start gives the log its time to answer

    def take(self, batch: EvidenceBatch, *, serves: bool) -> bool:
        """Read on; whether A's engine died in what is new. `serves`: A may have traffic."""
        taken = self.cursor.take(batch)
        same_gateway = batch.incarnation == self.cursor.incarnation
        if self.cursor.incarnation and not same_gateway:
            self.forget_rehearsal()  # it was another data plane that was heard
        undated = not self._answered or self.silence_s > _UNDATED_S
        self.cursor, self._heard, self._answered = taken.cursor, self._clock(), True
        for entry in taken.entries:
            self.traffic.take(entry)
        if undated:
            self.traffic.forget()
        if self.rehearsal is not None:
            self.rehearsal.take(taken.entries, self._heard)
        if self.fold is None or not serves:
            return False
        if not same_gateway:
            self.fold.new_incarnation()
        if taken.missed:
            self.fold.missed_some()
        return self.fold.take(taken.entries)

    def follow(self, state: RolloutState) -> None:
        """Judge the rollout that `state` is of, from where its time begins."""
        if state.plan is None or state.warm_from is None:
            self.fold = None
            return
        if self.fold is None or self.fold.warm_from != state.warm_from:
            self.fold = EvidenceFold(state.plan, state.warm_from)
        if state.judged_from is not None:
            self.fold.judge_from(state.judged_from)

    def rehearse(self, plan: RolloutPlan, rehearsal: str, within_s: float) -> Rehearsal:
        """Expect a rehearsed breach from now on."""
        self.rehearsal = Rehearsal(plan, rehearsal, self._clock(), within_s)
        return self.rehearsal

    def forget_rehearsal(self) -> None:
        """What an alarm proved before says nothing of now."""
        self.rehearsal, self.alarm_lack = None, None

    def look_for_rehearsal(self) -> None:
        """Note that the newest rehearsal has failed, where it has."""
        if self.rehearsal is not None:
            self.rehearsal.look(self._clock())
            self.alarm_lack = self.rehearsal.failure or self.alarm_lack

    @property
    def alarm(self) -> AlarmProof | None:
        """The proof that the newest rehearsal brought."""
        return None if self.rehearsal is None else self.rehearsal.proof

    @property
    def silence_s(self) -> float:
        """Since the log last answered, or since this reader began."""
        return self._clock() - self._heard

    @property
    def age_s(self) -> float | None:
        """The same; None: it has never answered."""
        return self.silence_s if self.cursor.incarnation else None

    @property
    def judgement(self) -> Judgement:
        return NOTHING_KNOWN if self.fold is None else self.fold.judgement()

    @property
    def canary(self) -> tuple[Numbers, ...]:
        """The figures on A, by line."""
        return () if self.fold is None else self.fold.numbers()

    @property
    def stable(self) -> tuple[Numbers, ...]:
        """The same on B."""
        return () if self.fold is None else self.fold.baseline()

    def blames_canary(self, cause: Cause) -> bool:
        """Whether A itself is the cause, as far as there is evidence; without any, it is."""
        if self.fold is None:
            return True
        lines = (n.line for n in self.fold.numbers() if cause_of(n.line) is cause)
        return any(self.fold.blames_canary(line) for line in lines)
