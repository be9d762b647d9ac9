"""What a metric is: its kind, its unit, and labels whose values are closed."""

from dataclasses import dataclass
from enum import StrEnum

from monitors import labels, rungs
from monitors.contract import ALL_CLASSES


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Table(StrEnum):
    CACHE = "cache"
    LATENCY = "latency"
    FAULTS = "faults"


class Unit(StrEnum):
    """What a value is in. A family in a unit ends in its name, as OpenMetrics asks."""

    SECONDS = "seconds"
    BYTES = "bytes"
    RATIO = "ratio"
    NATS = "nats"
    TOKENS = "tokens"
    NONE = ""  # things counted, states, generations


class Label(StrEnum):
    """Label names. `VERSION` is the one open label: at most four live."""

    VERSION = "version"
    LAYER = "layer_id"
    MODALITY = "modality"
    TIER = "tier"
    MILESTONE = "milestone"
    FAULT = "fault"
    GRADE = "grade"
    ORIGIN = "origin"
    OUTCOME = "outcome"
    RESIDENT = "resident"
    ROLE = "role"
    STATE = "state"
    DIGEST = "weights_digest"
    PART = "part"
    ACTION = "action"
    PHASE = "phase"
    RESULT = "result"
    DETECTOR = "detector"
    JUDGEMENT = "judgement"
    TABLE = "table"
    MARK = "mark"
    BOUND = "bound"
    BUILD = "build"
    EPOCH = "epoch"
    RUNG = "rung"
    SESSION_CLASS = "session_class"


CLOSED: dict[Label, tuple[str, ...]] = {
    Label.MODALITY: tuple(labels.Modality),
    Label.TIER: tuple(labels.Tier),
    Label.MILESTONE: tuple(labels.Milestone),
    Label.FAULT: tuple(labels.Fault),
    Label.GRADE: tuple(labels.Grade),
    Label.ORIGIN: tuple(labels.Origin),
    Label.OUTCOME: tuple(labels.Outcome),
    Label.DETECTOR: tuple(labels.Detector),
    Label.JUDGEMENT: tuple(labels.Judgement),
    Label.ROLE: tuple(labels.Role),
    Label.STATE: tuple(labels.ResidentState),
    Label.PART: ("media", "kv", "shed", "admission"),
    Label.ACTION: tuple(labels.Action),
    Label.RESULT: ("taken", "repeated", "refused"),
    Label.PHASE: tuple(labels.Phase),
    Label.TABLE: tuple(Table),
    Label.MARK: tuple(labels.Mark),
    Label.BOUND: ("low", "high"),
    Label.RUNG: rungs.NAMES,
    Label.SESSION_CLASS: ALL_CLASSES,
}


@dataclass(frozen=True)
class Metric:
    """One family. `column` names the table column that it feeds, where it feeds one."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    table: Table | None = None
    column: str | None = None
    unit: Unit = Unit.NONE

    def __post_init__(self) -> None:
        if self.unit and not self.family.endswith(f"_{self.unit}"):
            raise ValueError(f"{self.name} is in {self.unit}: let its name end in that")

    @property
    def family(self) -> str:
        """The name that OpenMetrics knows the family by: without the suffix of a counter."""
        return self.name.removesuffix("_total")
