"""In how few bits a checkpoint's pages can be kept at a given loss: bases learned on some clips,
chosen on others and verified on a third set (DESIGN 5)."""

from collections.abc import Callable
from dataclasses import dataclass

from monitors.contract import Wire
from runtime.engine.build import native_shape, reusable_layers
from runtime.kv.collect import unrotated
from runtime.kv.fitting import SubspaceFit
from runtime.kv.subspace import Subspace
from runtime.model.checkpoint import Checkpoint
from runtime.model.thinker import Thinker
from runtime.quality.bootstrap import Estimate
from runtime.quality.calibration_report import CalibrationPlan
from runtime.quality.calibration_runs import Outcome, Runs, loss
from runtime.quality.policies import NEVER

BITS = (2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0)  # of a number, tried in this order

Progress = Callable[[int, int], None]  # runs done, and how many there may come to be


class BasesReport(Wire, frozen=True):
    """Losses are rises of perplexity, as shares, with their 95 % intervals, and only of packing:
    nothing is aliased. `bits`: of a number, on average, without a token's scales; `None` where no
    try kept to the budget, and then `loss` is of the last.

    `token_bytes` of all layers, against `native_bytes` in the model's own form; `bases_bytes`:
    what the bases themselves take.
    """

    version: str
    weights_digest: str
    budget: float
    clips: int
    seconds: int
    seed: int
    bits: float | None
    loss: Estimate
    token_bytes: int
    native_bytes: int
    bases_bytes: int


@dataclass(frozen=True, eq=False)
class Bases:
    """`subspace` is the last one tried: to be kept where the report names its bits."""

    report: BasesReport
    subspace: Subspace


def calibrate_bases(
    checkpoint: Checkpoint, plan: CalibrationPlan, progress: Progress = lambda *_: None
) -> Bases:
    """The same plan and checkpoint give the same bases.

    Raises `PlanError`, `TooFewTokens`, `PoolTooSmall` or `NotANumber`.
    """
    done, most = 0, 3 + 2 * len(BITS)

    def tell() -> None:
        nonlocal done
        done += 1
        progress(done, most)

    runs = Runs(checkpoint, plan, tell)
    fit = learn(checkpoint, runs)
    chosen = _choose(checkpoint, plan, runs, fit)
    progress(most, most)
    return chosen


def learn(checkpoint: Checkpoint, runs: Runs) -> SubspaceFit:
    """From K and V of the first set of clips and their answers."""
    shape, rotary = native_shape(checkpoint), Thinker(checkpoint).rotary
    layers = checkpoint.config.thinker_config.text_config.num_hidden_layers
    solo = [layer - 1 for layer in reusable_layers(checkpoint)]
    fit = SubspaceFit(layers, shape.channels, solo)
    runs.run(
        runs.clips(0),
        NEVER,
        ended=lambda cache, sequence: fit.add(*unrotated(cache, sequence, rotary)),
    )
    return fit


def _choose(checkpoint: Checkpoint, plan: CalibrationPlan, runs: Runs, fit: SubspaceFit) -> Bases:
    """The fewest bits that keep to the budget on one set, and on another too: perplexity by the
    upper end of its interval, and answers that are right word for word by their share."""
    rotary = Thinker(checkpoint).rotary
    sets = [runs.clips(1), runs.clips(2)]
    native = [runs.run(clips, NEVER) for clips in sets]
    for bits in BITS:
        subspace = fit.fit(bits, rotary).to(checkpoint.device)
        held = True
        for clips, before in zip(sets, native, strict=True):
            after = runs.run(clips, NEVER, subspace=subspace)
            lost, right = loss(before, after), _right(after) - _right(before)
            held = lost.high <= plan.loss and right >= -plan.loss
            if not held:
                break
        if held:
            return Bases(_report(checkpoint, plan, bits, lost, subspace), subspace)
    return Bases(_report(checkpoint, plan, None, lost, subspace), subspace)


def _right(outcome: Outcome) -> float:
    """Share of answers that are right word for word."""
    return sum(dictation.exact for dictation in outcome.said) / len(outcome.said)


def _report(
    checkpoint: Checkpoint,
    plan: CalibrationPlan,
    bits: float | None,
    lost: Estimate,
    subspace: Subspace,
) -> BasesReport:
    shape = native_shape(checkpoint)
    layers = checkpoint.config.thinker_config.text_config.num_hidden_layers
    return BasesReport(
        version=checkpoint.version,
        weights_digest=checkpoint.weights_digest,
        budget=plan.loss,
        clips=plan.clips,
        seconds=plan.seconds,
        seed=plan.seed,
        bits=bits,
        loss=lost,
        token_bytes=subspace.token_bytes,
        native_bytes=layers * 2 * shape.channels * shape.dtype.itemsize,
        bases_bytes=subspace.nbytes,
    )
