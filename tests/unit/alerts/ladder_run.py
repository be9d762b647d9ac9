"""A ladder driven second by second, and the alerts that it hears."""

from dataclasses import dataclass, field

from alerts.decide import Hold, decide, holds
from alerts.firing import Firing
from alerts.forecast import History, Load, kept_s
from alerts.ladder import Ladder, Mode, Move, rebuild
from alerts.names import AlertName
from alerts.parts import Part
from monitors.contract import Level, MediaRung
from monitors.labels import Action
from monitors.redlines import RedLines

LINES = RedLines()
DWELL_S, RELAPSE_S = LINES.ladder.dwell_s, LINES.ladder.relapse_s
START = 1_000.0


def alert(action: Action, version: str = "v1") -> Firing:
    names = {
        Action.SHED: AlertName.FIRST_PACKET_SHED,
        Action.LIMIT_ADMISSION: AlertName.LADDER_EXHAUSTED,
        Action.DEGRADE_MEDIA: AlertName.LATENCY_DEGRADE,
        Action.QUANTISE_KV: AlertName.CACHE_BELOW_FLOOR,
        Action.ROLL_BACK: AlertName.FAULT_RATE,
        Action.NONE: AlertName.NO_DATA,
    }
    return Firing(
        alert=names[action],
        action=action,
        version=version,
        labels={"version": version},
        starts_at=0,
    )


LATENCY, CACHE = alert(Action.DEGRADE_MEDIA), alert(Action.QUANTISE_KV)
SLOW, EXHAUSTED = alert(Action.SHED), alert(Action.LIMIT_ADMISSION)


@dataclass
class Run:
    """A ladder driven second by second, and the moves it journalled. `load` is what is seen."""

    ladder: Ladder = field(default_factory=lambda: rebuild("v1", (), START, LINES.ladder))
    now: float = START
    moves: list[Move] = field(default_factory=list[Move])
    load: Load = field(default_factory=Load)
    history: History = field(default_factory=History)
    lines: RedLines = LINES

    def for_s(self, seconds: float, *firing: Firing, mode: Mode = Mode.LIVE) -> "Run":
        end = self.now + seconds
        while self.now < end:
            self.tick(*firing, mode=mode)
        return self

    def tick(self, *firing: Firing, mode: Mode = Mode.LIVE) -> "Run":
        keep_s = kept_s(self.lines.ladder)
        self.history = self.history.noted(self.now, self.load, keep_s)
        decision = decide(self.ladder, firing, self.history, self.now, self.lines, mode=mode)
        self.moves += decision.moves
        self.ladder = decision.ladder
        self.now += 1.0
        return self

    def held_by(self, part: Part) -> tuple[Hold, ...]:
        return holds(self.ladder, part, self.history, self.now, LINES)

    @property
    def level(self) -> Level:
        return self.ladder.level


def relapse(run: Run) -> float:
    """Fire once, be quiet until the ladder is back at full; how long that took, seconds."""
    run.tick(LATENCY)
    fired_at = run.now - 1
    while run.level.media is not MediaRung.FULL:
        run.tick()
    return run.moves[-1].at - fired_at
