"""What a calibration is asked to do, and what it found."""

import math
from dataclasses import dataclass

from monitors.contract import Wire
from monitors.labels import Modality
from runtime.kv.calibration import Calibration, Cell
from runtime.kv.reuse import Sign
from runtime.quality.bootstrap import Estimate
from runtime.quality.plan import PlanError


@dataclass(frozen=True)
class CalibrationPlan:
    """`loss`: how far the perplexity of right answers may rise, as a share; `clips` of `seconds`
    for the search, as many again for each verification. Raises `PlanError`."""

    loss: float
    clips: int = 60
    seconds: int = 8
    seed: int = 0
    pool_bytes: int = 256_000_000

    def __post_init__(self) -> None:
        if not 0.0 < self.loss < math.inf:
            raise PlanError(f"a loss of {self.loss:g} allows nothing: give one above 0, as 0.3%")
        for what, least in (("clips", 2), ("seconds", 1), ("seed", 0), ("pool_bytes", 1)):
            if getattr(self, what) < least:
                raise PlanError(f"{what} is {getattr(self, what)}: give at least {least}")


class CellReport(Wire, frozen=True):
    """One layer and modality. `share` of its `entries` were aliased when it was tried alone on
    the clips of the search, and `loss` is what that cost; of an unsafe one it is the mildest try.
    `rule`: as verified with the others, `None` where it never aliases."""

    layer: int
    modality: Modality
    entries: int
    sign: Sign
    share: float
    loss: Estimate
    rule: Cell | None


class CalibrationReport(Wire, frozen=True):
    """Losses are rises of perplexity, as shares, with their 95 % intervals.

    `joint` is of all cells together, on the clips of the last of `attempts` verifications, and
    `random` of as many entries drawn at random, on the same ones. `exact`: the change in the share
    of answers that are right word for word. `divergence`: nats a token from full KV.
    `calibration`: `None` where nothing was safe.
    """

    version: str
    weights_digest: str
    budget: float
    clips: int
    seconds: int
    seed: int
    native_nats: float
    cells: tuple[CellReport, ...]
    attempts: int
    aliased_share: float
    joint: Estimate
    exact: Estimate
    divergence: Estimate
    random_share: float
    random: Estimate
    calibration: Calibration | None
