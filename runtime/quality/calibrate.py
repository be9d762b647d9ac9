"""What a checkpoint may alias at a given loss: found on some clips, verified on others (DESIGN 5).

A layer and modality is a cell. For each, the largest share of entries is sought whose aliasing,
alone, keeps to the cell's part of the budget; then all of them together must keep to the whole of
it on clips that no threshold was chosen on, or they are tightened and tried on fresh ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.kv.calibration import Calibration, Cell, Made
from runtime.kv.reuse import SHADOW_BUDGET_NATS, AtRandom, Calibrated, CellRule, Sign
from runtime.model.checkpoint import Checkpoint
from runtime.quality.asking import Asked
from runtime.quality.bootstrap import Estimate, difference
from runtime.quality.calibration_report import CalibrationPlan, CalibrationReport, CellReport
from runtime.quality.calibration_runs import Outcome, Runs, Where, loss
from runtime.quality.plan import PlanError
from runtime.quality.policies import NEVER

SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)  # of a cell's entries, tried in this order
SHADOW_MARGIN = 2.0  # over the divergence that was measured: traffic is not these clips
_DIGITS = 6  # of thresholds, guards and budgets

Progress = Callable[[int, int], None]  # runs done, and how many there may come to be


@dataclass(frozen=True)
class _Try:
    """A rule for one cell that aliases `share` of its entries, and what that cost alone."""

    share: float
    rule: CellRule
    loss: Estimate


@dataclass(frozen=True, eq=False)
class _Verified:
    """The cells that are left, and the runs of the last attempt, all on the same clips."""

    tries: Mapping[Where, _Try]
    attempts: int
    native: Outcome
    joint: Outcome
    control: Outcome


def calibrate(
    checkpoint: Checkpoint, plan: CalibrationPlan, progress: Progress = lambda *_: None
) -> CalibrationReport:
    """The same plan and checkpoint give the same report.

    Raises `PlanError`, `PoolTooSmall` or `NotANumber`.
    """
    return _Calibrating(checkpoint, plan, progress).report()


class _Calibrating:
    def __init__(self, checkpoint: Checkpoint, plan: CalibrationPlan, progress: Progress) -> None:
        self._checkpoint = checkpoint
        self._plan = plan
        self._progress = progress
        self._runs = Runs(checkpoint, plan, self._tell)
        self._done, self._most = 0, 1

    def report(self) -> CalibrationReport:
        clips = self._runs.clips(0)
        watched = self._runs.run(clips, NEVER)
        cells = sorted({seen.where for seen in watched.seen})
        if not cells:
            raise PlanError("nothing in these clips may alias: give longer ones (--seconds)")
        self._most += len(cells) * (2 * len(SHARES) - 1) + 2 * len(SHARES) + 1
        tries = {where: self._search(where, clips, watched) for where in cells}
        verified = self._verify({w: t for w, (t, safe) in tries.items() if safe}, watched)
        self._progress(self._most, self._most)
        return self._reported({where: last for where, (last, _) in tries.items()}, verified)

    def _tell(self) -> None:
        self._done += 1
        self._progress(self._done, self._most)

    # ------------------------------------------------------------ the search, cell by cell
    def _search(self, where: Where, clips: Sequence[Asked], watched: Outcome) -> tuple[_Try, bool]:
        """The last try on one cell, and whether it kept to the cell's part of the budget."""
        allowed = self._plan.loss * len(watched.of(where)) / len(watched.seen)
        best: _Try | None = None
        for share in SHARES:
            rules = [_rule(watched, where, share, sign) for sign in _signs(share)]
            tries = [self._try(where, share, rule, clips, watched) for rule in rules]
            best = min(tries, key=lambda one: one.loss.high)
            if best.loss.high <= allowed:
                return best, True
        assert best is not None
        return best, False

    def _try(
        self,
        where: Where,
        share: float,
        rule: CellRule,
        clips: Sequence[Asked],
        watched: Outcome,
    ) -> _Try:
        return _Try(share, rule, loss(watched, self._runs.run(clips, Calibrated({where: rule}))))

    # ------------------------------------------------------------ all cells together
    def _verify(self, tries: Mapping[Where, _Try], watched: Outcome) -> _Verified:
        """Tighten until the bound holds, each time on clips that were not used before."""
        for attempt in range(1, len(SHARES) + 2):
            clips = self._runs.clips(attempt)
            native = self._runs.run(clips, NEVER)
            joint = native
            if tries:
                rules = {where: one.rule for where, one in tries.items()}
                joint = self._runs.run(clips, Calibrated(rules))
            if loss(native, joint).high <= self._plan.loss:
                even = AtRandom(joint.share or SHARES[-1], self._plan.seed)
                return _Verified(tries, attempt, native, joint, self._runs.run(clips, even))
            tries = _tightened(tries, watched)
        raise AssertionError("without any alias there is no loss")

    # ------------------------------------------------------------ the report
    def _reported(self, tries: Mapping[Where, _Try], verified: _Verified) -> CalibrationReport:
        plan, native, joint = self._plan, verified.native, verified.joint
        cells = {where: _cell(where, one, joint) for where, one in verified.tries.items()}
        found, control = loss(native, joint), loss(native, verified.control)
        apart = self._runs.divergence(native, joint)
        calibration = Calibration(
            weights_digest=self._checkpoint.weights_digest,
            cells=tuple(cells.values()),
            shadow_budget=shadow_budget(apart),
            made=made(plan, found, control, joint.share),
        )
        return CalibrationReport(
            version=self._checkpoint.version,
            weights_digest=self._checkpoint.weights_digest,
            budget=plan.loss,
            clips=plan.clips,
            seconds=plan.seconds,
            seed=plan.seed,
            native_nats=float(native.nats.mean()),
            cells=tuple(
                _cell_report(where, verified.tries.get(where, last), native, cells.get(where))
                for where, last in tries.items()
            ),
            attempts=verified.attempts,
            aliased_share=joint.share,
            joint=found,
            exact=difference([d.exact for d in native.said], [d.exact for d in joint.said]),
            divergence=apart,
            random_share=verified.control.share,
            random=control,
            calibration=calibration if cells else None,
        )


def _signs(share: float) -> tuple[Sign, ...]:
    """Where all alias there are no sides."""
    return (Sign.BELOW,) if share == 1.0 else tuple(Sign)


def _rule(watched: Outcome, where: Where, share: float, sign: Sign) -> CellRule:
    """Takes `share` of the entries that were watched."""
    nats = [seen.nats for seen in watched.of(where)]
    if share == 1.0:
        return CellRule(sign, upwards(max(nats)))  # one unit above the highest, which is taken too
    at = share if sign is Sign.BELOW else 1.0 - share
    return CellRule(sign, round(float(np.quantile(nats, at)), _DIGITS))


def _tightened(tries: Mapping[Where, _Try], watched: Outcome) -> dict[Where, _Try]:
    """Each cell takes the next smaller share; those that had the smallest are dropped."""
    smaller: dict[Where, _Try] = {}
    for where, one in tries.items():
        for share in [share for share in SHARES if share < one.share][:1]:
            rule = _rule(watched, where, share, one.rule.sign)
            smaller[where] = _Try(share, rule, one.loss)
    return smaller


def _cell(where: Where, one: _Try, joint: Outcome) -> Cell:
    """As verified: what is further off than any alias of the verification is not known to be
    safe, so the guard forbids it."""
    distances = [seen.distance for seen in joint.of(where) if seen.picked]
    return Cell(
        layer=where[0],
        modality=where[1],
        sign=one.rule.sign,
        threshold=one.rule.threshold,
        guard=upwards(max(distances)) if distances else 0.0,
    )


def _cell_report(where: Where, one: _Try, native: Outcome, rule: Cell | None) -> CellReport:
    return CellReport(
        layer=where[0],
        modality=where[1],
        entries=len(native.of(where)),
        sign=one.rule.sign,
        share=one.share,
        loss=one.loss,
        rule=rule,
    )


def made(plan: CalibrationPlan, found: Estimate, control: Estimate, share: float) -> Made:
    """For the file; `share` of all entries is aliased."""
    return Made(
        budget=plan.loss,
        loss=found.value,
        loss_low=found.low,
        loss_high=found.high,
        aliased_share=share,
        random_loss=control.value,
        clips=plan.clips,
        seconds=plan.seconds,
        seed=plan.seed,
    )


def shadow_budget(apart: Estimate) -> float:
    """Nats, of a policy whose answers were `apart` from those on full KV."""
    return max(SHADOW_BUDGET_NATS, round(SHADOW_MARGIN * apart.high, _DIGITS))


def upwards(value: float) -> float:
    """The next figure of so many digits above it."""
    unit = 10**_DIGITS
    return (math.floor(value * unit) + 1) / unit
