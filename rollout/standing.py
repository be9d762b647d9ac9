"""The ladder must not hide a bad A: a level that it needs and B does not is a breach (DESIGN 8)."""

from collections.abc import Iterator

import msgspec

from monitors.contract import Evidence, Level, SessionClass, Wire
from monitors.rungs import word

PARTS: tuple[str, ...] = Level.__struct_fields__
# Of the time between two entries so much counts: in more A may have been back, or the clock moved.
LONGEST_STEP_S = 30.0


class NeededLevel(Wire, frozen=True):
    """A has stood on a worse rung of `part` than B for `seconds`; `canary` and `stable`: the
    rungs' names."""

    part: str
    session_class: SessionClass
    canary: str
    stable: str
    seconds: float

    @property
    def line(self) -> str:
        """The name by which its cause is looked up."""
        return f"level_{self.part}"

    def in_words(self) -> str:
        """A sentence for the journal and the page."""
        return (
            f"{self.line}: for {self.seconds:.0f} s A has needed {self.part} at {self.canary} for "
            f"{self.session_class} sessions, and B, at {self.stable}, has not"
        )


class ClassLevels(Wire, frozen=True):
    """Where sessions of a class were last seen to be served. `excused`: parts that a human held,
    until A is back where B is. `waited`: seconds that A was seen worse, by part, up to its entry
    of `canary_at`."""

    canary: Level | None = None
    stable: Level | None = None
    stable_served: float | None = None
    canary_by_hand: tuple[str, ...] = ()
    stable_by_hand: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()
    canary_at: float | None = None
    waited: dict[str, float] = msgspec.field(default_factory=dict[str, float])


class StandingState(Wire, frozen=True):
    """All that is known of levels between two entries."""

    classes: dict[SessionClass, ClassLevels]
    needed: tuple[NeededLevel, ...]


class Standing:
    """Levels of A and B, class by class of sessions, in the log's own time."""

    def __init__(self, dwell_s: float, state: StandingState | None = None) -> None:
        self._dwell_s = dwell_s
        self._classes = {} if state is None else dict(state.classes)
        self._needed = () if state is None else state.needed

    @property
    def needed(self) -> tuple[NeededLevel, ...]:
        """Levels that A needed and B did not. They stay, as every breach."""
        return self._needed

    def stable_level(self, session_class: SessionClass) -> Level | None:
        """B's last level for sessions of a class; None for one that it was not seen to have.
        Interactive ones are at full fidelity until seen otherwise."""
        seen = self._classes.get(session_class, ClassLevels()).stable
        return Level() if seen is None and session_class is SessionClass.INTERACTIVE else seen

    def see_stable(self, entry: Evidence) -> None:
        """An entry of B; one of a request shows that it serves this class."""
        seen = self._classes.get(entry.session_class, ClassLevels())
        self._classes[entry.session_class] = msgspec.structs.replace(
            seen,
            stable=entry.level,
            stable_by_hand=entry.by_hand,
            stable_served=entry.wall if entry.request_id else seen.stable_served,
        )

    def see_canary(self, entry: Evidence, *, comparable: bool) -> None:
        """An entry of A. Not `comparable`: A has most of the load, so it may need more than B."""
        seen = msgspec.structs.replace(
            self._classes.get(entry.session_class, ClassLevels()),
            canary=entry.level,
            canary_by_hand=entry.by_hand,
        )
        seen = self._compared(seen, entry.wall, comparable=comparable)
        self._classes[entry.session_class] = seen
        for needed in self._overdue(seen, entry):
            known = {(each.part, each.session_class) for each in self._needed}
            if (needed.part, needed.session_class) not in known:
                self._needed = (*self._needed, needed)

    def forget_waits(self) -> None:
        """Entries were lost, so A may have been where B is meanwhile."""
        for each, seen in self._classes.items():
            self._classes[each] = msgspec.structs.replace(seen, waited={})

    def save(self) -> StandingState:
        return StandingState(classes=dict(self._classes), needed=self._needed)

    def _compared(self, seen: ClassLevels, now: float, *, comparable: bool) -> ClassLevels:
        lately = seen.stable_served is not None and now - seen.stable_served <= self._dwell_s
        worse = _worse_parts(seen)
        by_hand = {*seen.canary_by_hand, *seen.stable_by_hand}
        excused = tuple(p for p in PARTS if p in by_hand or (p in seen.excused and p in worse))
        waiting = set(worse) - set(excused) if comparable and lately else set[str]()
        passed = now - (now if seen.canary_at is None else seen.canary_at)
        step = min(max(passed, 0.0), LONGEST_STEP_S)
        waited = {
            part: seen.waited[part] + step if part in seen.waited else 0.0
            for part in PARTS
            if part in waiting
        }
        return msgspec.structs.replace(seen, excused=excused, waited=waited, canary_at=now)

    def _overdue(self, seen: ClassLevels, entry: Evidence) -> Iterator[NeededLevel]:
        for part, waited in seen.waited.items():
            if waited > self._dwell_s:
                yield NeededLevel(
                    part=part,
                    session_class=entry.session_class,
                    canary=word(getattr(seen.canary, part)),
                    stable=word(getattr(seen.stable, part)),
                    seconds=waited,
                )


def _worse_parts(seen: ClassLevels) -> tuple[str, ...]:
    if seen.canary is None or seen.stable is None:
        return ()
    return tuple(p for p in PARTS if getattr(seen.canary, p) > getattr(seen.stable, p))
