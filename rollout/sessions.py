"""What each session has said so far: the unit of evidence, in bounded memory (ADR 34)."""

import hashlib
from collections.abc import Iterator

import msgspec

from monitors.contract import Count, Wire

SLOT_S = 60.0  # from a session's first turn until its mean is a word of its own
UNIT_S = 300.0  # from its first turn until a session that still speaks counts as another
MOST_SESSIONS = 1_024  # that are remembered of one resident; past it the oldest is forgotten


class Said(msgspec.Struct, frozen=True, array_like=True):
    """One session's turns on one line. The `health` ones may count for the line."""

    turns: Count = 0
    total: float = 0.0
    health_turns: Count = 0
    health_total: float = 0.0
    bad: bool = False  # it had a bad turn: no more is bet on its turns

    @property
    def mean(self) -> float:
        return self.total / self.turns

    @property
    def health(self) -> float | None:
        """Mean of the turns that may count for the line; None before the first."""
        return self.health_total / self.health_turns if self.health_turns else None

    def and_then(self, y: float, *, bad: bool, as_health: bool) -> "Said":
        """With one more turn."""
        return Said(
            turns=self.turns + 1,
            total=self.total + y,
            health_turns=self.health_turns + as_health,
            health_total=self.health_total + (y if as_health else 0.0),
            bad=self.bad or bad,
        )

    def without_health(self) -> "Said":
        return msgspec.structs.replace(self, health_turns=0, health_total=0.0)


class Spoken(Wire, frozen=True):
    """A session since its first turn (`since`, wall seconds)."""

    since: float
    said: dict[str, Said]

    def on(self, line: str) -> Said:
        return self.said.get(line, Said())


class SessionsState(Wire, frozen=True):
    """Both oldest first, by the hash of their names."""

    speaking: dict[str, Spoken]  # in their slot
    told: dict[str, Spoken]  # after it: their means were taken


class Sessions:
    """The sessions of one resident: who is speaking, and who has had its slot."""

    def __init__(self, state: SessionsState | None = None) -> None:
        self._speaking = {} if state is None else dict(state.speaking)
        self._told = {} if state is None else dict(state.told)

    def of(self, session: str, at: float) -> Spoken:
        """A session as it stands; a new one begins at `at`."""
        key = key_of(session)
        return self._speaking.get(key) or self._told.get(key) or Spoken(since=at, said={})

    def has_told(self, session: str) -> bool:
        """Whether the session's slot is over."""
        return key_of(session) in self._told

    def keep(self, session: str, spoken: Spoken) -> None:
        """The session as it stands now."""
        key = key_of(session)
        (self._told if key in self._told else self._speaking)[key] = spoken

    def end_slots(self, now: float) -> Iterator[tuple[str, Spoken]]:
        """(hash, session) of each whose slot ends by `now`, once, in the order they began. Where
        too many are remembered the oldest are forgotten, and tell before."""
        while self._speaking:
            key, spoken = next(iter(self._speaking.items()))
            if now - spoken.since < SLOT_S and not self._is_crowded():
                break
            self._told[key] = self._speaking.pop(key)
            self._forget(now)
            yield key, spoken
        self._forget(now)

    def forget_health(self) -> None:
        """What sessions showed for a line is to be shown anew."""
        for table in (self._speaking, self._told):
            for key, spoken in table.items():
                said = {line: each.without_health() for line, each in spoken.said.items()}
                table[key] = msgspec.structs.replace(spoken, said=said)

    def save(self) -> SessionsState:
        return SessionsState(speaking=dict(self._speaking), told=dict(self._told))

    def _is_crowded(self) -> bool:
        return len(self._speaking) + len(self._told) > MOST_SESSIONS

    def _forget(self, now: float) -> None:
        while self._told:
            key, spoken = next(iter(self._told.items()))
            if now - spoken.since < UNIT_S and not self._is_crowded():
                return
            del self._told[key]


def key_of(session: str) -> str:
    """A session's name, which a client chose, in 16 characters."""
    return hashlib.blake2b(session.encode(), digest_size=8).hexdigest()
