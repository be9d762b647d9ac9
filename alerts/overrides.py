"""What a human holds a version at for a while, whatever the alerts say (ADR 32)."""

from collections.abc import Mapping

import msgspec

from alerts.parts import ENGINES_OWN, RUNGS, Part
from monitors.contract import ALL_CLASSES, SessionClass, Wire


class OverrideError(ValueError):
    """An override that cannot be; the message says what to do."""


class Override(Wire, frozen=True):
    """`parts` of a version are held at these rungs for sessions of `classes`, until `until` (wall
    seconds, as `at`). One of all classes is where its ladder goes on from when it ends; one of
    some lies over the ladder meanwhile, and leaves it alone."""

    at: float
    until: float
    version: str
    classes: tuple[SessionClass, ...]
    parts: dict[Part, int]
    actor: str
    reason: str

    @property
    def is_for_all(self) -> bool:
        """Whether it holds every session of the version."""
        return set(self.classes) == set(ALL_CLASSES)

    def holds(self, part: Part, now: float) -> bool:
        """Whether the ladder may not move this part now."""
        return self.is_for_all and part in self.parts and now < self.until

    def no_later_than(self, now: float) -> "Override":
        """The same, given just now where it lies ahead of that."""
        return self.shifted(min(now - self.at, 0.0))

    def shifted(self, by_s: float) -> "Override":
        """The same, so much later."""
        return msgspec.structs.replace(self, at=self.at + by_s, until=self.until + by_s)

    def moves(self, part: Part, rung: int, session_class: SessionClass, now: float) -> bool:
        """Whether sessions of a class have this part from the hand, where the ladder's own is on
        `rung`."""
        if now >= self.until or session_class not in self.classes or part not in self.parts:
            return False
        return self.is_for_all or self.parts[part] > rung

    def over(
        self, rungs: Mapping[Part, int], session_class: SessionClass, now: float
    ) -> dict[Part, int]:
        """The rungs that sessions of a class get, of those that the ladder has. One of some
        classes serves them no better than the others: of the two the worse holds."""
        if now >= self.until or session_class not in self.classes:
            return dict(rungs)
        if self.is_for_all:
            return {**rungs, **self.parts}
        return {part: max(rung, self.parts.get(part, rung)) for part, rung in rungs.items()}


class OverrideEnded(Wire, frozen=True):
    """An override is over: its time has passed, or somebody cleared it."""

    at: float
    version: str
    actor: str
    reason: str


def check(override: Override) -> None:
    """Raises `OverrideError` for one that holds nothing, nobody, or what cannot be held."""
    if not override.parts:
        raise OverrideError("hold at least one part: media, kv, shed or admission")
    if not override.classes:
        raise OverrideError("name the session classes: none is not all")
    if override.until <= override.at:
        raise OverrideError("an override lasts more than 0 s; give it a time, as 30m")
    for part, rung in override.parts.items():
        if not 0 <= rung <= max(RUNGS[part]):
            raise OverrideError(f"{part} has no rung {rung}")
    shared = sorted(ENGINES_OWN & set(override.parts))
    if shared and not override.is_for_all:
        raise OverrideError(
            f"{' and '.join(shared)}: the engine has one for all sessions; name every class"
        )
