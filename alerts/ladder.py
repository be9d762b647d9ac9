"""The degradation ladder of one version: its stairs, as a fold over what the journal tells."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from alerts.forecast import Load, assumed_ratio
from alerts.overrides import Override, OverrideEnded
from alerts.parts import Part, kin, level_at
from monitors.contract import KvRung, Level, MediaRung, SessionClass, Wire
from monitors.redlines import MOST_MOVES, LadderLines

LADDER = "ladder"  # who acts where no human does
_HOUR_S = 3600.0


class Mode(StrEnum):
    """`FROZEN` is the kill switch: the ladder stays on its rungs."""

    LIVE = "live"
    DRY_RUN = "dry_run"
    FROZEN = "frozen"


class Move(Wire, frozen=True):
    """One part of one version's level goes to `rung`. `at` is wall seconds, for the journal
    outlives the process. `seen`: what was known when it was decided."""

    at: float
    version: str
    part: Part
    rung: int
    reason: str
    actor: str = LADDER
    seen: Load = Load()


class Measured(Wire, frozen=True):
    """What a worsening of media was good for: one rung better takes `ratio` times the work."""

    at: float
    version: str
    rung: int
    ratio: float


Event = Move | Override | OverrideEnded | Measured


@dataclass(frozen=True)
class Stair:
    """Where one part stands, and how long it must be quiet before it may go back a rung."""

    dwell_s: float
    fired_at: float  # when its alert was last seen firing, or could not be seen
    rung: int = 0
    crossed_at: float | None = None  # when one rung better was last foreseen to cross the line
    moved_at: float | None = None
    eased_at: float | None = None
    moves: tuple[float, ...] = ()  # the ladder's own, the newest `MOST_MOVES`
    left: Load | None = None  # what was seen as it came to this worse rung, until it is measured
    stood_s: float = math.inf  # how long the rung before was kept
    ratios: Mapping[int, float] = field(default_factory=dict[int, float])  # measured, by rung
    why: str = ""  # of the last move
    evidence: str = ""

    def moved(self, move: Move, lines: LadderLines) -> "Stair":
        """After a move. A worse rung soon after an easing is a relapse: the dwell doubles."""
        made = replace(
            self,
            rung=move.rung,
            moved_at=move.at,
            stood_s=math.inf if self.moved_at is None else move.at - self.moved_at,
            moves=(*self.moves[1 - MOST_MOVES :], move.at),
            why=move.reason,
            evidence=move.seen.told(),
        )
        if move.rung < self.rung:
            return replace(made, eased_at=move.at, left=None)
        # One relapse an easing: the rung after it is the same episode still.
        dwell_s = self.dwell_s
        if self.eased_at is not None and move.at - self.eased_at < lines.relapse_s:
            dwell_s = min(2 * dwell_s, lines.max_dwell_s)
        elif self.rung == 0:
            dwell_s = lines.dwell_s
        return replace(made, eased_at=None, left=move.seen, dwell_s=dwell_s)

    def held(self, rung: int, override: Override) -> "Stair":
        """Put on a rung by a human: no easing that could be a relapse, and no move of the ladder's
        own."""
        return replace(
            self,
            rung=rung,
            moved_at=override.at,
            eased_at=None,
            left=None,
            why=override.reason,
            evidence="",
        )

    def rested(self, now: float, seconds: float) -> bool:
        """Whether the last move lies so far back."""
        return self.moved_at is None or now - self.moved_at >= seconds

    def spent(self, now: float) -> int:
        """How many moves the ladder has made in the last hour."""
        return sum(now - at < _HOUR_S for at in self.moves)

    def no_later_than(self, now: float) -> "Stair":
        """The same, what lies ahead of `now` done just now."""
        return replace(
            self,
            fired_at=min(self.fired_at, now),
            crossed_at=_earlier(self.crossed_at, now),
            moved_at=_earlier(self.moved_at, now),
            eased_at=_earlier(self.eased_at, now),
            moves=tuple(min(at, now) for at in self.moves),
        )

    def patience(self, lines: LadderLines) -> float:
        """How many times longer everything takes after relapses."""
        return max(1.0, self.dwell_s / lines.dwell_s)

    def ratio(self, lines: LadderLines) -> float:
        """Of media: how many times the work one rung better takes."""
        return self.ratios.get(self.rung) or assumed_ratio(MediaRung(self.rung), lines)


def _earlier(at: float | None, now: float) -> float | None:
    return None if at is None else min(at, now)


@dataclass(frozen=True)
class Cause:
    """Who took a part to where it is, when, and why. `at` is minus infinity where nobody did."""

    at: float
    actor: str
    reason: str
    evidence: str = ""


@dataclass(frozen=True)
class Ladder:
    """One version's stairs. Everything but what was seen (`fired_at`, `crossed_at`) is a fold over
    journalled events, of which there were `events`. `limited_for_memory`: when admission was
    limited last, KV had no rung left."""

    version: str
    stairs: dict[Part, Stair]
    override: Override | None = None
    events: int = 0
    limited_for_memory: bool = False

    @property
    def level(self) -> Level:
        """Where the stairs stand, whatever a human holds some sessions at."""
        return level_at(self._rungs())

    def level_of(self, session_class: SessionClass, now: float) -> Level:
        """What sessions of a class should be served at."""
        rungs = self._rungs()
        if self.override is not None:
            rungs = self.override.over(rungs, session_class, now)
        return level_at(rungs)

    def kin(self, part: Part) -> tuple[Part, ...]:
        """The parts that answer to what `part` answers to, itself among them. Admission that was
        limited for memory answers to that as well."""
        match part:
            case Part.KV | Part.ADMISSION if self.limited_for_memory:
                return tuple(dict.fromkeys((*kin(part), Part.KV, Part.ADMISSION)))
            case _:
                return kin(part)

    def cause(self, parts: Iterable[Part], session_class: SessionClass, now: float) -> Cause:
        """What moved one of these parts of a class's level last."""
        causes = [self._cause(part, session_class, now) for part in parts]
        return max(causes, key=lambda cause: cause.at)

    def is_held(self, part: Part, now: float) -> bool:
        """Whether a human holds this part where it is."""
        return self.override is not None and self.override.holds(part, now)

    def by_hand(self, classes: Iterable[SessionClass], now: float) -> tuple[str, ...]:
        """The parts that are where a human holds them, for sessions of any of these classes."""
        hand, rungs = self.override, self._rungs()
        if hand is None:
            return ()
        return tuple(
            part.value
            for part in Part
            if any(hand.moves(part, rungs[part], each, now) for each in classes)
        )

    def after(self, event: Event, lines: LadderLines) -> "Ladder":
        """The ladder once this has happened."""
        changed = replace(self, events=self.events + 1)
        match event:
            case Move():
                return changed._moved(event, lines)
            case Override():
                held = event.parts.items() if event.is_for_all else ()
                stairs = {part: self.stairs[part].held(rung, event) for part, rung in held}
                return replace(changed.with_stairs(stairs), override=event)
            case OverrideEnded():
                return replace(changed, override=None)
            case Measured():
                media = self.stairs[Part.MEDIA]
                ratios = {**media.ratios, event.rung: event.ratio}
                return changed.with_stairs({Part.MEDIA: replace(media, ratios=ratios, left=None)})

    def no_later_than(self, now: float) -> "Ladder":
        """The same, what lies ahead of `now` done just now: the clock was set back since. Else a
        budget would be free until then, no forecast be told, and an override last so much longer.
        """
        hand = None if self.override is None else self.override.no_later_than(now)
        stairs = {part: stair.no_later_than(now) for part, stair in self.stairs.items()}
        return replace(self, stairs=stairs, override=hand)

    def _cause(self, part: Part, session_class: SessionClass, now: float) -> Cause:
        stair, hand = self.stairs[part], self.override
        if hand is not None and hand.moves(part, stair.rung, session_class, now):
            return Cause(hand.at, hand.actor, hand.reason)
        at = -math.inf if stair.moved_at is None else stair.moved_at
        return Cause(at, LADDER, stair.why or "full fidelity", stair.evidence)

    def _moved(self, move: Move, lines: LadderLines) -> "Ladder":
        stair = self.stairs[move.part]
        changed = self.with_stairs({move.part: stair.moved(move, lines)})
        if move.part is Part.ADMISSION and move.rung > stair.rung:
            for_memory = self.stairs[Part.KV].rung == max(KvRung)
            return replace(changed, limited_for_memory=for_memory)
        return changed

    def with_stairs(self, stairs: Mapping[Part, Stair]) -> "Ladder":
        """With these in place of theirs."""
        return replace(self, stairs={**self.stairs, **stairs})

    def _rungs(self) -> dict[Part, int]:
        return {part: stair.rung for part, stair in self.stairs.items()}


def rebuild(version: str, events: Iterable[Event], now: float, lines: LadderLines) -> Ladder:
    """The ladder after its journalled events, of which other versions' are passed over.

    What fired while nobody watched is unknown, so every dwell starts at `now`.
    """
    fresh = Stair(dwell_s=lines.dwell_s, fired_at=now)
    ladder = Ladder(version, dict.fromkeys(Part, fresh))
    for event in events:
        if event.version == version:
            ladder = ladder.after(event, lines)
    return ladder
