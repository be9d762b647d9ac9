"""The parts of a level that the ladder moves, each by its own alert alone (DESIGN 7)."""

from enum import IntEnum, StrEnum

from monitors.contract import Admission, KvRung, Level, MediaRung, Shed
from monitors.labels import Action


class Part(StrEnum):
    """In the order of escalation, which is that of the named rungs: the mildest first."""

    SHED = "shed"
    MEDIA = "media"
    KV = "kv"
    ADMISSION = "admission"


RUNGS: dict[Part, type[IntEnum]] = {
    Part.SHED: Shed,
    Part.MEDIA: MediaRung,
    Part.KV: KvRung,
    Part.ADMISSION: Admission,
}
ACTION_OF = {
    Part.SHED: Action.SHED,
    Part.MEDIA: Action.DEGRADE_MEDIA,
    Part.KV: Action.QUANTISE_KV,
    Part.ADMISSION: Action.LIMIT_ADMISSION,
}

LOAD_PARTS = (Part.SHED, Part.MEDIA, Part.ADMISSION)
"""Answers to too much work, which come back one after the other, the harshest first. KV answers to
too little memory."""
ENGINES_OWN = frozenset({Part.SHED, Part.KV})
"""The same for every session of a resident: no class can have them to itself."""


def kin(part: Part) -> tuple[Part, ...]:
    """The parts that answer to what `part` answers to, itself among them."""
    return LOAD_PARTS if part in LOAD_PARTS else (part,)


def level_at(rungs: dict[Part, int]) -> Level:
    """The level of these rungs, one for each part."""
    return Level(
        media=MediaRung(rungs[Part.MEDIA]),
        kv=KvRung(rungs[Part.KV]),
        shed=Shed(rungs[Part.SHED]),
        admission=Admission(rungs[Part.ADMISSION]),
    )
