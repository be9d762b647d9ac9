"""The ladder's named rungs: the default order in which fidelity is given up (DESIGN 7)."""

from enum import IntEnum
from itertools import product

from monitors.contract import Admission, KvRung, Level, MediaRung, Shed

_MEDIA_WORDS = {
    MediaRung.FULL: "full",
    MediaRung.P360_8K: "360p+8k",
    MediaRung.P160_8K: "160x160+8k",
}

RUNGS: tuple[Level, ...] = (
    Level(),
    Level(shed=Shed.ON),
    Level(shed=Shed.ON, media=MediaRung.P360_8K),
    Level(shed=Shed.ON, media=MediaRung.P360_8K, kv=KvRung.INT8),
    Level(shed=Shed.ON, media=MediaRung.P160_8K, kv=KvRung.INT8),
    Level(shed=Shed.ON, media=MediaRung.P160_8K, kv=KvRung.INT8, admission=Admission.LIMITED),
)
"""Rung 0 is full fidelity; each one gives up one part more than the one before."""


def name_of(level: Level) -> str:
    """A level in a word: what it gives up, as `p360_8k+int8`; `full` for nothing."""
    parts: tuple[IntEnum, ...] = (level.media, level.kv, level.admission)
    given_up = [part.name.lower() for part in parts if part] + ["shed"] * bool(level.shed)
    return "+".join(given_up) or "full"


NAMES: tuple[str, ...] = tuple(
    name_of(Level(media=media, kv=kv, shed=shed, admission=admission))
    for media, kv, shed, admission in product(MediaRung, KvRung, Shed, Admission)
)
"""Every level there can be."""


def shown(level: Level) -> str:
    """A level in one header value: `full`, or what is less than that: `media=360p+8k kv=int8`."""
    parts = ((part, getattr(level, part)) for part in level.__struct_fields__)
    return " ".join(f"{part}={word(rung)}" for part, rung in parts if rung) or "full"


def word(rung: IntEnum) -> str:
    """One part of a level, as people read it."""
    return _MEDIA_WORDS[rung] if isinstance(rung, MediaRung) else rung.name.lower()
