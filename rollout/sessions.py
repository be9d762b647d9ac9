"""What each session has said so far: the unit of evidence, in bounded memory (ADR 34)."""

import hashlib
import zlib
from collections.abc import Iterator

import msgspec

from monitors.contract import Count

SLOT_S = 10.0  # from a session's first turn until its mean is a word of its own
UNIT_S = 300.0  # from its first turn until a session that still speaks counts as another
MOST_SESSIONS = 2_048  # that are remembered of one resident


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


class Spoken(msgspec.Struct, frozen=True, array_like=True):
    """A session since its first turn (`since`, wall seconds)."""

    since: float
    said: dict[str, Said]

    def on(self, line: str) -> Said:
        return self.said.get(line, Said())


class _Tables(msgspec.Struct, frozen=True, array_like=True):
    """Both oldest first, by the hash of their names."""

    speaking: dict[str, Spoken]
    told: dict[str, Spoken]


class Sessions:
    """The sessions of one resident: who is speaking, and who has had its slot.

    Where there is no room, the oldest that has had its slot is forgotten; where all are speaking,
    no new one is heard, so that none is ever taken for two.
    """

    def __init__(self, saved: bytes | None = None) -> None:
        """`saved`: what `save` gave. Raises `ValueError` where it is no such thing."""
        tables = _Tables({}, {}) if saved is None else _unpacked(saved)
        self._speaking, self._told = tables.speaking, tables.told

    def of(self, session: str, at: float) -> Spoken | None:
        """A session as it stands; a new one begins at `at`, or is not heard for want of room."""
        key = key_of(session)
        known = self._speaking.get(key) or self._told.get(key)
        if known is not None or len(self._speaking) < MOST_SESSIONS:
            return known or Spoken(since=at, said={})
        return None

    def has_told(self, session: str) -> bool:
        """Whether the session's slot is over."""
        return key_of(session) in self._told

    def keep(self, session: str, spoken: Spoken) -> None:
        """The session as it stands now."""
        key = key_of(session)
        (self._told if key in self._told else self._speaking)[key] = spoken
        if len(self._speaking) + len(self._told) > MOST_SESSIONS:
            del self._told[next(iter(self._told))]

    def end_slots(self, now: float) -> Iterator[tuple[str, Spoken]]:
        """(hash, session) of each whose slot ends by `now`, once, in the order they began."""
        while self._speaking:
            key, spoken = next(iter(self._speaking.items()))
            if 0.0 <= now - spoken.since < SLOT_S:  # a clock that was set back ends it too
                break
            self._told[key] = self._speaking.pop(key)
            yield key, spoken
        while self._told:
            key, spoken = next(iter(self._told.items()))
            if 0.0 <= now - spoken.since < UNIT_S:
                break
            del self._told[key]

    def forget_health(self) -> None:
        """What sessions showed for a line is to be shown anew."""
        for table in (self._speaking, self._told):
            for key, spoken in table.items():
                said = {line: each.without_health() for line, each in spoken.said.items()}
                table[key] = msgspec.structs.replace(spoken, said=said)

    def save(self) -> bytes:
        """All of it, small: it goes into the journal every few seconds."""
        tables = _Tables(speaking=self._speaking, told=self._told)
        return zlib.compress(msgspec.msgpack.encode(tables), level=1)


def _unpacked(saved: bytes) -> _Tables:
    try:
        return msgspec.msgpack.decode(zlib.decompress(saved), type=_Tables)
    except zlib.error as err:
        raise ValueError(f"the saved sessions cannot be read: {err}") from err


def key_of(session: str) -> str:
    """A session's name, which a client chose, in 16 characters."""
    return hashlib.blake2b(session.encode(), digest_size=8).hexdigest()
