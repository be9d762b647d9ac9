"""A learned rule for a checkpoint at a given loss (S5.1): nets trained on some clips, how much they
may alias verified on others, under the same budget as thresholds (`runtime/quality/calibrate.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from monitors.contract import Wire
from monitors.labels import Modality
from runtime.engine.build import reusable_layers
from runtime.kv.calibration import Calibration, LearnedCell, LearnedRule
from runtime.kv.learned import Learned, Net
from runtime.kv.reuse import AtRandom, Candidate
from runtime.model.checkpoint import Checkpoint
from runtime.quality.bootstrap import Estimate
from runtime.quality.calibrate import SHARES, Progress, made, shadow_budget, upwards
from runtime.quality.calibration_report import CalibrationPlan
from runtime.quality.calibration_runs import Outcome, Runs, Where, loss
from runtime.quality.learning import NothingAliased, gather, train
from runtime.quality.plan import PlanError
from runtime.quality.policies import NEVER


class LearnedCellReport(Wire, frozen=True):
    """One layer and modality: what an alias is foretold to cost, nats a token, the median of the
    clips of the search; and the share of its entries that the last verification aliased."""

    layer: int
    modality: Modality
    parameters: int
    foretold: float
    aliased_share: float


class LearnedReport(Wire, frozen=True):
    """`share`: of all entries, those of least foretold harm, as last tried. The rest as in
    `CalibrationReport`."""

    version: str
    weights_digest: str
    budget: float
    clips: int
    seconds: int
    seed: int
    trials: int
    cells: tuple[LearnedCellReport, ...]
    attempts: int
    share: float
    aliased_share: float
    joint: Estimate
    divergence: Estimate
    random_share: float
    random: Estimate
    calibration: Calibration | None


@dataclass
class Foretelling:
    """Aliases nothing; `harms` keeps what each entry is foretold to cost."""

    rule: Learned
    harms: dict[Where, list[float]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return "foretelling"

    def threshold(self, layer: int, modality: Modality) -> float | None:
        return None

    def picks(self, entry: Candidate) -> bool:
        where = (entry.layer, entry.modality)
        self.harms.setdefault(where, []).append(self.rule.harm(entry))
        return False

    def quantile(self, share: float) -> float:
        """The harm below which this share of all entries is."""
        known = [harm for harms in self.harms.values() for harm in harms]
        return upwards(float(np.nanquantile(known, share)))


def calibrate_learned(
    checkpoint: Checkpoint, plan: CalibrationPlan, progress: Progress = lambda *_: None
) -> LearnedReport:
    """The same plan and checkpoint give the same report.

    Raises `PlanError`, `PoolTooSmall` or `NotANumber`.
    """
    layers = reusable_layers(checkpoint)
    done, most = 0, plan.clips * (1 + len(layers)) + 1 + 2 * len(SHARES) + 1

    def tell() -> None:
        nonlocal done
        done += 1
        progress(done, most)

    runs = Runs(checkpoint, plan, tell)
    clips = runs.clips(0)
    trials = gather(
        clips,
        layers,
        lambda clip, rule: runs.run([clip], rule),
        lambda full, other: runs.divergence(full, other).value,
        plan.seed,
    )
    try:
        nets = train(trials, plan.seed)
    except NothingAliased as err:
        raise PlanError(f"{err} (--seconds)") from err
    seen = Foretelling(Learned(nets, np.inf))
    runs.run(clips, seen)
    report = _verified(checkpoint, plan, runs, nets, seen, len(trials))
    progress(most, most)
    return report


def _verified(
    checkpoint: Checkpoint,
    plan: CalibrationPlan,
    runs: Runs,
    nets: Mapping[Where, Net],
    seen: Foretelling,
    trials: int,
) -> LearnedReport:
    """Less is aliased until the bound holds, each time on clips that were not used before."""
    attempt, share, safe = 0, SHARES[0], False
    native = joint = Outcome((), ())
    rule = Learned(nets, 0.0)
    for attempt, share in enumerate(SHARES, 1):
        clips = runs.clips(attempt)
        rule = Learned(nets, seen.quantile(share))
        native, joint = runs.run(clips, NEVER), runs.run(clips, rule)
        safe = joint.share > 0.0 and loss(native, joint).high <= plan.loss
        if safe:
            break
    control = runs.run(runs.clips(attempt), AtRandom(joint.share or SHARES[-1], plan.seed))
    found, chance = loss(native, joint), loss(native, control)
    apart = runs.divergence(native, joint)
    calibration = Calibration(
        weights_digest=checkpoint.weights_digest,
        learned=_in_file(rule, joint) if safe else None,
        shadow_budget=shadow_budget(apart),
        made=made(plan, found, chance, joint.share),
    )
    return LearnedReport(
        version=checkpoint.version,
        weights_digest=checkpoint.weights_digest,
        budget=plan.loss,
        clips=plan.clips,
        seconds=plan.seconds,
        seed=plan.seed,
        trials=trials,
        cells=tuple(_cell(where, net, seen, joint) for where, net in nets.items()),
        attempts=attempt,
        share=share,
        aliased_share=joint.share,
        joint=found,
        divergence=apart,
        random_share=control.share,
        random=chance,
        calibration=calibration if safe else None,
    )


def _in_file(rule: Learned, joint: Outcome) -> LearnedRule:
    """What is further off than any alias of the verification is not known to be safe."""
    return LearnedRule(
        limit=rule.limit,
        guard=upwards(max(one.distance for one in joint.seen if one.picked)),
        cells=tuple(
            LearnedCell(layer=layer, modality=modality, weights=tuple(net.flat.tolist()))
            for (layer, modality), net in rule.nets.items()
        ),
    )


def _cell(where: Where, net: Net, seen: Foretelling, joint: Outcome) -> LearnedCellReport:
    picked = [one.picked for one in joint.of(where)]
    return LearnedCellReport(
        layer=where[0],
        modality=where[1],
        parameters=net.parameters,
        foretold=float(np.nanmedian(seen.harms.get(where, [np.nan]))),
        aliased_share=float(np.mean(picked)) if picked else 0.0,
    )
