"""The degradation ladder: what fires, and when it last fired, in; one resident's level out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from alerts.firing import Firing
from monitors.contract import KvRung, Level, MediaRung, Wire
from monitors.labels import Action
from monitors.redlines import LadderLines, RedLines


class Part(StrEnum):
    """The parts of a level that the ladder moves, each by its own alert alone (DESIGN 7)."""

    MEDIA = "media"
    KV = "kv"


RUNGS: dict[Part, type[IntEnum]] = {Part.MEDIA: MediaRung, Part.KV: KvRung}
ACTION_OF = {Part.MEDIA: Action.DEGRADE_MEDIA, Part.KV: Action.QUANTISE_KV}


class Mode(StrEnum):
    """`FROZEN` is the kill switch: the ladder stays on its rungs."""

    LIVE = "live"
    DRY_RUN = "dry_run"
    FROZEN = "frozen"


class Move(Wire, frozen=True):
    """One part of one version's level goes to `rung`. The journal's entries: a ladder is their
    fold. `at` is wall seconds, for the journal outlives the process."""

    at: float
    version: str
    part: Part
    rung: int
    reason: str


@dataclass(frozen=True)
class Forecast:
    """What is expected one rung better. None is unknown."""

    p99_s: float | None = None  # of the slowest first output, at the better media rung
    live_gb: float | None = None  # live KV, GB, once it is native again


@dataclass(frozen=True)
class Stair:
    """Where one part stands, and how long it must be quiet before it may go back a rung."""

    dwell_s: float
    fired_at: float  # when its alert was last seen firing, or could not be seen
    rung: int = 0
    moved_at: float | None = None
    eased_at: float | None = None

    def moved(self, rung: int, at: float, lines: LadderLines) -> "Stair":
        """After a move. A worse rung soon after an easing is a relapse: the dwell doubles."""
        if rung < self.rung:
            return replace(self, rung=rung, moved_at=at, eased_at=at)
        # One relapse an easing: the rung after it is the same episode still.
        dwell_s = self.dwell_s
        if self.eased_at is not None and at - self.eased_at < lines.relapse_s:
            dwell_s = min(2 * dwell_s, lines.max_dwell_s)
        elif self.rung == 0:
            dwell_s = lines.dwell_s
        return replace(self, rung=rung, moved_at=at, eased_at=None, dwell_s=dwell_s)

    def rested(self, now: float, seconds: float) -> bool:
        """Whether the last move lies so far back, or ahead: then the clock was set back since."""
        return self.moved_at is None or not 0.0 <= now - self.moved_at < seconds


@dataclass(frozen=True)
class Ladder:
    """One version's stairs. Everything but `fired_at` is a fold over journalled moves."""

    version: str
    stairs: dict[Part, Stair]

    @property
    def level(self) -> Level:
        return Level(
            media=MediaRung(self.stairs[Part.MEDIA].rung), kv=KvRung(self.stairs[Part.KV].rung)
        )

    def after(self, move: Move, lines: LadderLines) -> "Ladder":
        """The ladder once `move` is made."""
        stair = self.stairs[move.part].moved(move.rung, move.at, lines)
        return replace(self, stairs={**self.stairs, move.part: stair})


def rebuild(version: str, moves: Iterable[Move], now: float, lines: LadderLines) -> Ladder:
    """The ladder after its journalled moves, of which other versions' are passed over.

    What fired while nobody watched is unknown, so every dwell starts at `now`.
    """
    fresh = Stair(dwell_s=lines.dwell_s, fired_at=now)
    ladder = Ladder(version, dict.fromkeys(Part, fresh))
    for move in moves:
        if move.version == version:
            ladder = ladder.after(move, lines)
    return ladder


@dataclass(frozen=True)
class Decision:
    """What to do now. Journal `moves`, then keep `ladder` and order `ladder.level`.

    In a dry run `moves` are what would have been done, and `ladder` stays where it is.
    """

    ladder: Ladder
    moves: tuple[Move, ...]
    dry_run: bool


def decide(
    ladder: Ladder,
    firing: Iterable[Firing] | None,
    now: float,
    lines: RedLines,
    *,
    mode: Mode = Mode.LIVE,
    forecast: Forecast = Forecast(),
) -> Decision:
    """One tick. `now` is wall seconds; `firing` may hold other versions' alerts.

    None for `firing` says that nobody watches: no move is made and every dwell starts again.
    """
    alerts = None if firing is None else [f for f in firing if f.version == ladder.version]
    seen = replace(ladder, stairs=_seen(ladder.stairs, alerts, now))
    if alerts is None or mode is Mode.FROZEN:
        return Decision(seen, (), dry_run=False)
    moves = tuple(
        move for part in Part if (move := _step(seen, part, alerts, now, lines, forecast))
    )
    if mode is Mode.DRY_RUN:
        return Decision(seen, moves, dry_run=True)
    for move in moves:
        seen = seen.after(move, lines.ladder)
    return Decision(seen, moves, dry_run=False)


def _seen(stairs: dict[Part, Stair], alerts: list[Firing] | None, now: float) -> dict[Part, Stair]:
    """Note which parts' alerts fire, or may for all we know; nothing was seen after `now`."""
    return {
        part: replace(
            stair,
            fired_at=now if alerts is None or _of(part, alerts) else min(stair.fired_at, now),
        )
        for part, stair in stairs.items()
    }


def _of(part: Part, alerts: list[Firing]) -> Firing | None:
    return next((alert for alert in alerts if alert.action is ACTION_OF[part]), None)


def _step(
    ladder: Ladder, part: Part, alerts: list[Firing], now: float, lines: RedLines, ahead: Forecast
) -> Move | None:
    stair, alert = ladder.stairs[part], _of(part, alerts)
    if alert is not None and _may_worsen(stair, part, now, lines.ladder):
        return Move(
            at=now, version=ladder.version, part=part, rung=stair.rung + 1, reason=alert.alert
        )
    if alert is None and _may_ease(stair, part, now, lines, ahead):
        reason = f"quiet for {now - stair.fired_at:.0f} s"
        return Move(at=now, version=ladder.version, part=part, rung=stair.rung - 1, reason=reason)
    return None


def _may_worsen(stair: Stair, part: Part, now: float, lines: LadderLines) -> bool:
    """The first rung at once; the next when this one had its time and it still fires."""
    return stair.rung < max(RUNGS[part]) and (stair.rung == 0 or stair.rested(now, lines.dwell_s))


def _may_ease(stair: Stair, part: Part, now: float, lines: RedLines, ahead: Forecast) -> bool:
    """A rung back after the dwell, unless the forecast says that the line would be crossed.

    An unknown forecast does not forbid it: without traffic nothing is ever known, and the first
    users after a quiet night should not meet last night's rung. A wrong guess costs one relapse,
    which the alert undoes and which doubles the dwell.
    """
    quiet = now - stair.fired_at >= stair.dwell_s and stair.rested(now, stair.dwell_s)
    return stair.rung > 0 and quiet and not _would_cross(part, lines, ahead)


def _would_cross(part: Part, lines: RedLines, ahead: Forecast) -> bool:
    if part is Part.MEDIA:
        return ahead.p99_s is not None and ahead.p99_s > lines.latency.degrade_s
    return ahead.live_gb is not None and ahead.live_gb > lines.cache.gpu_mem_gb
