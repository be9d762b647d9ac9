"""What an evaluation is asked to do: which questions, under which KV policy, on which rung."""

from dataclasses import dataclass
from enum import StrEnum

from monitors.contract import KvRung, Level
from monitors.rungs import RUNGS
from runtime.kv.formats import Format
from runtime.quality.tasks import Kind

_FORMS = {"int8": Format.INT8, "int4": Format.INT4, "subspace": Format.SUBSPACE}


class PlanError(ValueError):
    """A plan that cannot be followed; the message lists what can."""


class Reuse(StrEnum):
    """Which entries point at the layer below's page (S1.2)."""

    CHECKPOINT = "checkpoint"  # as the calibration in its folder says
    NATIVE = "native"  # none
    ARTICLE = "reuse"  # below S1.3's thresholds
    LOWEST50 = "lowest50"  # the half of them with the lowest entropy
    RANDOM50 = "random50"  # half of them at random: the control


@dataclass(frozen=True)
class KvPolicy:
    """How K and V are kept."""

    reuse: Reuse = Reuse.CHECKPOINT
    storage: Format = Format.NATIVE

    @property
    def name(self) -> str:
        packed = self.storage is not Format.NATIVE
        return f"{self.reuse}+{self.storage.name.lower()}" if packed else str(self.reuse)

    @classmethod
    def named(cls, name: str) -> "KvPolicy":
        """A reuse policy, with `+int8`, `+int4` or `+subspace` for packed pages; one of these
        alone is behind `native`.

        Raises `PlanError`.
        """
        reuse, plus, form = name.partition("+")
        if name in _FORMS:
            reuse, plus, form = Reuse.NATIVE, "+", name
        if reuse not in list(Reuse) or (plus and form not in _FORMS):
            choices, forms = ", ".join([*Reuse, *_FORMS]), ", ".join(f"X+{form}" for form in _FORMS)
            raise PlanError(f"no KV policy is called {name!r}: choose one of {choices}, or {forms}")
        return cls(Reuse(reuse), _FORMS[form] if plus else Format.NATIVE)


@dataclass(frozen=True)
class Plan:
    """`count` held-out questions of each task; clips last `seconds`. Raises `PlanError`.

    `rung` counts the ladder's named rungs from 0, full fidelity. `seed` picks other samples, which
    training sees as little.
    """

    tasks: tuple[Kind, ...] = tuple(Kind)
    policy: KvPolicy = KvPolicy()
    rung: int = 0
    seconds: int = 8
    count: int = 200
    speech: bool = False
    seed: int = 0
    pool_bytes: int = 256_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.rung < len(RUNGS):
            rungs = ", ".join(str(rung) for rung in range(len(RUNGS)))
            raise PlanError(f"the ladder has no rung {self.rung}: choose one of {rungs}")
        if not self.tasks:
            raise PlanError(f"no task is named: choose from {', '.join(Kind)}")
        for what, least in (("seconds", 1), ("count", 1), ("seed", 0), ("pool_bytes", 1)):
            if getattr(self, what) < least:
                raise PlanError(f"{what} is {getattr(self, what)}: give at least {least}")

    @property
    def level(self) -> Level:
        """What the rung gives up."""
        return RUNGS[self.rung]

    @property
    def kv(self) -> KvRung:
        """What the rung makes of pages that the policy leaves native."""
        return self.level.kv


def tasks_named(names: str) -> tuple[Kind, ...]:
    """Kinds of a list like `digits,colours`, each once. Raises `PlanError`."""
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in list(Kind)]
    if unknown or not asked:
        what = f"no task is called {', '.join(unknown)}" if unknown else "no task is named"
        raise PlanError(f"{what}: choose from {', '.join(Kind)}")
    return tuple(Kind(name) for name in dict.fromkeys(asked))
