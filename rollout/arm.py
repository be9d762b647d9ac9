"""One resident's evidence in a rollout: a test per line, and the sessions that speak in them."""

from collections.abc import Iterable

import msgspec

from monitors.contract import Wire
from rollout.sequential import Line, LineTest, Numbers, Saved, Verdict
from rollout.sessions import Said, Sessions, Spoken, key_of


class Turn(Wire, frozen=True):
    """One request on one line. `session` None: it stands alone and is a session of its own.

    `at`: wall seconds. `counts_as_health`: it may also speak for the line, not only against it.
    """

    line: str
    y: float
    request: str
    session: str | None
    at: float
    counts_as_health: bool


class ArmState(Wire, frozen=True):
    """An arm between two entries, to be journalled."""

    tests: dict[str, Saved]
    sessions: bytes


class Arm:
    """A or B. Its time is that of what it is given."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._tests = {line.name: LineTest(line) for line in lines}
        self._sessions = Sessions()

    def take(self, turn: Turn) -> bool:
        """One turn; whether it told something new: a session that had a bad turn on this line does
        no more, nor does one that there is no room to remember."""
        self.pass_time(turn.at)
        test = self._tests[turn.line]
        if turn.session is None:
            test.observe(turn.y, key_of(turn.request), counts_as_health=turn.counts_as_health)
            return True
        spoken = self._sessions.of(turn.session, turn.at)
        if spoken is None:
            test.turn(turn.y, key_of(turn.session), None)
            return False
        before = spoken.on(turn.line)
        test.turn(turn.y, key_of(turn.session), None if before.bad else before.turns)
        self._remember(turn, turn.session, spoken)
        return not before.bad

    def pass_time(self, now: float) -> None:
        """It is `now` by the log: sessions whose slot is over are settled."""
        for key, spoken in self._sessions.end_slots(now):
            for line, said in spoken.said.items():
                self._tests[line].settle(said.mean, key)

    def restart(self) -> None:
        """Every test stakes one more share."""
        for test in self._tests.values():
            test.restart()

    def forget_health(self) -> None:
        """Evidence of health begins anew, of whoever speaks as well."""
        self._sessions.forget_health()
        for test in self._tests.values():
            test.forget_health()

    def test(self, line: str) -> LineTest:
        """The test of the line of this name."""
        return self._tests[line]

    def numbers(self) -> tuple[Numbers, ...]:
        """Every line's figures."""
        return tuple(test.numbers() for test in self._tests.values())

    def breaches(self) -> tuple[Numbers, ...]:
        """Figures of the lines that are breached."""
        return tuple(
            test.numbers() for test in self._tests.values() if test.verdict is Verdict.BREACH
        )

    def save(self) -> ArmState:
        return ArmState(
            tests={name: test.save() for name, test in self._tests.items()},
            sessions=self._sessions.save(),
        )

    @classmethod
    def restore(cls, lines: Iterable[Line], state: ArmState) -> "Arm":
        """The arm as it was saved. Raises `ValueError` for a state of other lines."""
        arm = cls(lines)
        if set(state.tests) != set(arm._tests):
            raise ValueError(f"saved lines {sorted(state.tests)} are not the plan's")
        for name, test in arm._tests.items():
            arm._tests[name] = LineTest.restore(test.line, state.tests[name])
        arm._sessions = Sessions(state.sessions)
        return arm

    # ------------------------------------------------------------ a turn of a session
    def _remember(self, turn: Turn, session: str, spoken: Spoken) -> None:
        """The session's word so far, in its means and in what it shows for the line."""
        test, before = self._tests[turn.line], spoken.on(turn.line)
        bad = test.is_bad(turn.y)
        in_slot = not self._sessions.has_told(session)
        after = before.and_then(
            turn.y, bad=bad, as_health=bad or (in_slot and turn.counts_as_health)
        )
        self._sessions.keep(session, _with(spoken, turn.line, after))
        if after.health is not None:
            test.show_health(before.health, after.health)


def _with(spoken: Spoken, line: str, said: Said) -> Spoken:
    return msgspec.structs.replace(spoken, said={**spoken.said, line: said})
