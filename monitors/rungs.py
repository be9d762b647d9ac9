"""The ladder's named rungs: the default order in which fidelity is given up (DESIGN 7)."""

from monitors.contract import Admission, KvRung, Level, MediaRung, Shed

RUNGS: tuple[Level, ...] = (
    Level(),
    Level(shed=Shed.ON),
    Level(shed=Shed.ON, media=MediaRung.P360_8K),
    Level(shed=Shed.ON, media=MediaRung.P360_8K, kv=KvRung.INT8),
    Level(shed=Shed.ON, media=MediaRung.P160_8K, kv=KvRung.INT8),
    Level(shed=Shed.ON, media=MediaRung.P160_8K, kv=KvRung.INT8, admission=Admission.LIMITED),
)
"""Rung 0 is full fidelity; each one gives up one part more than the one before."""
