"""Maintenance windows: times of the week at which notices wake nobody. Actions go on."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d|24:00")
MIDNIGHT, NEXT_MIDNIGHT = "00:00", "24:00"
NAMED = "maintenance "  # how the names of our windows begin in Alertmanager


class Weekday(StrEnum):
    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"

    @property
    def next(self) -> "Weekday":
        """The day after."""
        days = list(Weekday)
        return days[(days.index(self) + 1) % len(days)]


def _clock(value: object) -> object:
    """YAML reads an unquoted 22:00 as 22 * 60."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value // 60:02d}:{value % 60:02d}"
    return value


def _is_clock(value: str) -> str:
    if not _CLOCK.fullmatch(value):
        raise ValueError(f"{value} is no time of day; write 02:30, at most 24:00")
    return value


def _is_zone(value: str) -> str:
    try:
        return value if value == "UTC" else ZoneInfo(value).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise ValueError(f"{value} is no time zone; write UTC or as Europe/Berlin") from err


Clock = Annotated[str, BeforeValidator(_clock), AfterValidator(_is_clock)]
Zone = Annotated[str, AfterValidator(_is_zone)]


class Window(BaseModel):
    """Every week on `days` between two times of day in `zone`; past midnight where `to` is no
    later than `from`, and then the day is the one on which it begins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: Annotated[tuple[Weekday, ...], Field(min_length=1)]
    from_: Annotated[Clock, Field(alias="from")]
    to: Clock
    zone: Zone = "UTC"
    reason: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _has_a_beginning(self) -> "Window":
        if self.from_ == NEXT_MIDNIGHT or self.to == MIDNIGHT:
            raise ValueError("a window goes from 00:00 at the earliest to 24:00 at the latest")
        return self


def time_intervals(windows: tuple[Window, ...]) -> list[dict[str, Any]]:
    """The windows as Alertmanager's `time_intervals`, one of them for each."""
    return [
        {"name": interval_name(place, window), "time_intervals": [*_intervals(window)]}
        for place, window in enumerate(windows)
    ]


def interval_name(place: int, window: Window) -> str:
    """What the window at `place` is called in Alertmanager's configuration: it says why, for
    whoever looks there what mutes an alert."""
    return f"{NAMED}{place + 1}: {window.reason}"


def _intervals(window: Window) -> Iterator[dict[str, Any]]:
    """Alertmanager's times of day do not go past midnight: then two stretches do."""
    days = list(window.days)
    if window.from_ < window.to:
        yield _interval(days, window.from_, window.to, window.zone)
        return
    yield _interval(days, window.from_, NEXT_MIDNIGHT, window.zone)
    yield _interval([day.next for day in days], MIDNIGHT, window.to, window.zone)


def _interval(days: list[Weekday], start: str, end: str, zone: str) -> dict[str, Any]:
    return {
        "times": [{"start_time": start, "end_time": end}],
        "weekdays": [day.value for day in days],
        "location": zone,
    }
