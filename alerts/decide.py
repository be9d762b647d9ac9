"""What the ladder does next: levels, what fires, what was seen and the time in; moves out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from alerts import forecast
from alerts.firing import Firing
from alerts.forecast import Forecast, History, Load
from alerts.ladder import Ladder, Measured, Mode, Move, Stair
from alerts.parts import ACTION_OF, RUNGS, Part
from monitors.contract import MediaRung
from monitors.redlines import LadderLines, RedLines

_MEASURED_WITHIN = 4  # windows after a worsening: later the load is another one


class Hold(StrEnum):
    """Why a part is not given back a rung now."""

    OVERRIDE = "a human holds it"
    FIRING = "its alert fires, or one of its kin"
    DWELL = "the dwell is not over"
    HARSHER = "a harsher part comes back first"
    BUDGET = "the hour's moves are spent"
    FORECAST = "the line would be crossed"


@dataclass(frozen=True)
class Decision:
    """What to do now. Keep `seen`, and fold `measured` and `moves` into it as they are journalled:
    that makes `ladder`, whose levels are ordered.

    In a dry run `moves` are what would have been done, and `ladder` stays where it is.
    """

    seen: Ladder
    ladder: Ladder
    moves: tuple[Move, ...] = ()
    measured: Measured | None = None
    dry_run: bool = False


def decide(
    ladder: Ladder,
    firing: Iterable[Firing] | None,
    history: History,
    now: float,
    lines: RedLines,
    *,
    mode: Mode = Mode.LIVE,
    was_away: bool = False,
) -> Decision:
    """One tick. `now` is wall seconds; `firing` may hold other versions' alerts.

    None for `firing` says that nobody watches: no move is made and every dwell starts again.
    `was_away`: nobody watched until now; every dwell starts again, and what fires still acts.
    """
    alerts = None if firing is None else [f for f in firing if f.version == ladder.version]
    noted = _seen(ladder.no_later_than(now), None if was_away else alerts, now)
    seen = _foreseen(noted, history, now, lines)
    if alerts is None or mode is Mode.FROZEN:
        return Decision(seen, seen)
    measured = _measured(seen, history, now, lines)
    after = seen if measured is None else seen.after(measured, lines.ladder)
    moves = _moves(after, alerts, history, now, lines)
    if mode is Mode.DRY_RUN:
        return Decision(seen, after, moves, measured, dry_run=True)
    for move in moves:
        after = after.after(move, lines.ladder)
    return Decision(seen, after, moves, measured)


def _seen(ladder: Ladder, alerts: list[Firing] | None, now: float) -> Ladder:
    """Note which parts' alerts fire, or may for all we know."""
    stairs: dict[Part, Stair] = {}
    for part, stair in ladder.stairs.items():
        fires = alerts is None or _of(part, alerts) is not None
        stairs[part] = replace(stair, fired_at=now) if fires else stair
    return ladder.with_stairs(stairs)


def _foreseen(ladder: Ladder, history: History, now: float, lines: RedLines) -> Ladder:
    """Note which parts would cross their line one rung better."""
    stairs: dict[Part, Stair] = {}
    for part, stair in ladder.stairs.items():
        if stair.rung and foresee(ladder, part, history, now, lines).crosses:
            stairs[part] = replace(stair, crossed_at=now)
    return ladder.with_stairs(stairs)


def _of(part: Part, alerts: list[Firing]) -> Firing | None:
    return next((alert for alert in alerts if alert.action is ACTION_OF[part]), None)


def _moves(
    ladder: Ladder, alerts: list[Firing], history: History, now: float, lines: RedLines
) -> tuple[Move, ...]:
    """Every part whose alert asks for it goes down; of parts that are kin one comes back."""
    moves = [
        move for part in Part if (move := _worsening(ladder, part, alerts, history, now, lines))
    ]
    for move in moves:  # what goes down may be what another part waits for
        ladder = ladder.after(move, lines.ladder)
    for part in reversed(Part):
        if not ladder.stairs[part].rung or holds(ladder, part, history, now, lines):
            continue
        if not any(move.part in ladder.kin(part) for move in moves):
            moves.append(_easing(ladder, part, history, now, lines))
    return tuple(moves)


# ---------------------------------------------------------------- a rung worse
def _worsening(
    ladder: Ladder,
    part: Part,
    alerts: list[Firing],
    history: History,
    now: float,
    lines: RedLines,
) -> Move | None:
    """The first rung at once; the next when this one had its time and it still fires."""
    stair, alert = ladder.stairs[part], _of(part, alerts)
    if alert is None or ladder.is_held(part, now) or stair.rung == max(RUNGS[part]):
        return None
    # A dwell is a worsening's time to help; an easing that was wrong is undone at once.
    worsened = stair.rung and stair.eased_at is None
    if worsened and not stair.rested(now, lines.ladder.dwell_s):
        return None
    return Move(
        at=now,
        version=ladder.version,
        part=part,
        rung=stair.rung + 1,
        reason=alert.alert,
        seen=history.newest,
    )


def _measured(ladder: Ladder, history: History, now: float, lines: RedLines) -> Measured | None:
    """What the last worsening of media was good for, once a window lies behind it; the one before
    it must have been of one rung, too."""
    media = ladder.stairs[Part.MEDIA]
    window_s = lines.latency.window_s
    is_time = media.rested(now, window_s) and not media.rested(now, _MEASURED_WITHIN * window_s)
    if media.left is None or media.stood_s < window_s or not is_time:
        return None
    ratio = forecast.measured_ratio(media.left, history.newest, MediaRung(media.rung), lines.ladder)
    if ratio is None:
        return None
    return Measured(at=now, version=ladder.version, rung=media.rung, ratio=ratio)


# ---------------------------------------------------------------- a rung better
def holds(
    ladder: Ladder, part: Part, history: History, now: float, lines: RedLines
) -> tuple[Hold, ...]:
    """All that keeps a part from being given back a rung; nothing: it may be."""
    stair, budget = ladder.stairs[part], lines.ladder.moves_per_hour
    family = [ladder.stairs[each] for each in ladder.kin(part)]
    # What a human holds comes back when they let go: milder parts do not wait for that.
    harsher = [
        ladder.stairs[each]
        for each in ladder.kin(part)
        if _is_harsher(each, part) and not ladder.is_held(each, now)
    ]
    quiet = now - max(each.fired_at for each in family)
    rested = all(each.rested(now, stair.dwell_s) for each in family)
    found = {
        Hold.OVERRIDE: ladder.is_held(part, now),
        Hold.FIRING: quiet <= 0.0,
        Hold.DWELL: quiet < stair.dwell_s or not rested,
        Hold.HARSHER: any(each.rung for each in harsher),
        Hold.BUDGET: stair.spent(now) >= budget,
        # Of many looks the luckiest is inside the line: all of a dwell must be.
        Hold.FORECAST: stair.crossed_at is not None
        and now - stair.crossed_at < stair.dwell_s
        and not _is_to_be_tested(stair, quiet, now, lines.ladder),
    }
    return tuple(hold for hold, holds in found.items() if holds)


def _is_harsher(other: Part, part: Part) -> bool:
    order = list(Part)
    return order.index(other) > order.index(part)


def _is_to_be_tested(stair: Stair, quiet_s: float, now: float, lines: LadderLines) -> bool:
    """Whether a forecast has held a quiet rung for so long that it must be put to the test: no
    model is right for ever, and a wrong test costs one relapse, which doubles the time."""
    trust_s = lines.trust_s * stair.patience(lines)
    return quiet_s >= trust_s and stair.rested(now, trust_s)


def foresee(ladder: Ladder, part: Part, history: History, now: float, lines: RedLines) -> Forecast:
    """What the part would do one rung better, at the highest load that is remembered.

    A wrong guess costs one relapse, which the alert undoes and which doubles the dwell.
    """
    stair = ladder.stairs[part]
    memory_s = lines.ladder.memory_s * stair.patience(lines.ladder)
    load, peak = _telling(ladder, part, history, now, lines, memory_s), history.peak(now, memory_s)
    match part:
        case Part.MEDIA:
            ratio = stair.ratio(lines.ladder)
            return forecast.of_p99(forecast.p99_ahead(load, ratio, peak), lines)
        case Part.ADMISSION:
            memory = forecast.of_memory(forecast.live_gb_at(history.newest, peak), lines)
            if ladder.limited_for_memory and memory.crosses:
                return memory
            return forecast.of_p99(forecast.p99_ahead(load, 1.0, peak), lines)
        case Part.SHED:
            return forecast.of_busy(forecast.busy_ahead(load, peak), lines)
        case Part.KV:
            return forecast.of_memory(forecast.live_gb_ahead(history.newest), lines)


def _telling(
    ladder: Ladder, part: Part, history: History, now: float, lines: RedLines, memory_s: float
) -> Load:
    """The newest look that is of the present rungs alone: its window began after the last move, and
    after the alerts had gone. Of too few requests to tell, what was told last stands for as long as
    a load is remembered; of none, nothing is known."""
    family = [ladder.stairs[each] for each in ladder.kin(part)]
    changed = max(max(s.fired_at, s.moved_at or s.fired_at) for s in family)
    first = changed + lines.latency.window_s
    if history.at is None or history.at < first:
        return Load()
    is_few = history.newest.p99_s is None and bool(history.newest.per_s)
    if is_few and history.told_at is not None and first <= history.told_at <= now:
        return history.told if now - history.told_at <= memory_s else history.newest
    return history.newest


def _easing(ladder: Ladder, part: Part, history: History, now: float, lines: RedLines) -> Move:
    stair = ladder.stairs[part]
    ahead = foresee(ladder, part, history, now, lines)
    why = "to test the forecast:" if ahead.crosses else "then expected:"
    quiet_s = now - max(ladder.stairs[each].fired_at for each in ladder.kin(part))
    return Move(
        at=now,
        version=ladder.version,
        part=part,
        rung=stair.rung - 1,
        reason=f"quiet for {quiet_s:.0f} s; {why} {ahead.what}",
        seen=history.newest,
    )
