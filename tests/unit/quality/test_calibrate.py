"""Calibration: on runs whose harm is known, and on real weights that cannot be shared."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.reuse import (
    SHADOW_BUDGET_NATS,
    AtRandom,
    Candidate,
    Likeness,
    LowEntropy,
    ReuseRule,
    Sign,
)
from runtime.model import checkpoint as checkpoints
from runtime.model.checkpoint import Checkpoint
from runtime.quality import calibrate as calibrating
from runtime.quality.bootstrap import Estimate
from runtime.quality.calibrate import SHARES, calibrate
from runtime.quality.calibration_report import CalibrationPlan, CalibrationReport
from runtime.quality.calibration_runs import Outcome, Runs, Watch, Where
from runtime.quality.held_out import draw
from runtime.quality.likelihood import Dictation
from runtime.quality.plan import PlanError
from runtime.quality.tasks import Kind
from tests.support.sharing import own_scale

A, V = (1, Modality.AUDIO), (1, Modality.VIDEO)
NATS = np.linspace(0.025, 1.0, 40)
CLIPS = 6
Harm = Callable[[Where, float, int], float]  # of an alias: its cell, its entropy, its set of clips


def at(distance: float) -> Likeness:
    return Likeness((distance, distance), (0.0, 0.0), (1.0, 1.0), (1.0, 1.0))


class Known:
    """Stands for `Runs`: each clip has an entry of each entropy in each cell; aliases cost."""

    def __init__(self, harm: Harm, apart: float) -> None:
        self._harm = harm
        self._apart = apart
        self.rules: list[ReuseRule] = []

    def clips(self, part: int) -> list[int]:
        return [part] * CLIPS

    def run(self, clips: Sequence[int], rule: ReuseRule) -> Outcome:
        self.rules.append(rule)
        watch, said = Watch(rule), list[Dictation]()
        for number, part in enumerate(clips):
            cost = sum(self._cost(watch, part, number, where) for where in (A, V))
            said.append(Dictation([0], [1.0 + cost], [torch.zeros(2)], [True]))
        return Outcome(said, watch.seen)

    def divergence(self, native: Outcome, other: Outcome) -> Estimate:
        return Estimate(value=self._apart, low=0.0, high=self._apart)

    def _cost(self, watch: Watch, part: int, number: int, where: Where) -> float:
        cost = 0.0
        for nats in NATS:
            place = f"{part} {number} {where} {nats}".encode()
            far = float(nats) if where == A else 2.0
            if watch.picks(Candidate(*where, float(nats), place, lambda far=far: at(far))):
                cost += self._harm(where, float(nats), part)
        return cost


@pytest.fixture
def found(loaded: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CalibrationReport]:
    """A calibration over known harm; `runs` of it keeps what was run."""

    def run(harm: Harm, loss: float = 0.003, apart: float = 0.0) -> CalibrationReport:
        monkeypatch.setattr(calibrating, "Runs", lambda *_: Known(harm, apart))
        return calibrate(loaded, CalibrationPlan(loss, clips=CLIPS))

    return run


Found = Callable[..., CalibrationReport]


def test_what_harms_nothing_is_aliased_whole(found: Found) -> None:
    report = found(lambda *_: 0.0)
    assert [(row.share, row.rule is not None) for row in report.cells] == [(1.0, True)] * 2
    assert (report.aliased_share, report.attempts) == (1.0, 1)
    assert report.calibration is not None
    assert [cell.threshold > NATS.max() for cell in report.calibration.cells] == [True] * 2


def test_a_cell_that_harms_never_aliases_and_the_others_do(found: Found) -> None:
    report = found(lambda where, *_: 1.0 if where == V else 0.0)
    audio, video = report.cells
    assert audio.rule is not None
    assert video.rule is None
    assert (video.share, video.loss.low > 1.0) == (SHARES[-1], True)
    assert report.calibration is not None
    assert [cell.modality for cell in report.calibration.cells] == [Modality.AUDIO]
    assert report.aliased_share == 0.5


@pytest.mark.parametrize(("sign", "low_harms"), [(Sign.BELOW, False), (Sign.ABOVE, True)])
def test_the_side_that_harms_less_is_found(found: Found, sign: Sign, low_harms: bool) -> None:
    report = found(lambda where, nats, _: float((nats < 0.4) is low_harms))
    for row in report.cells:
        assert row.rule is not None
        assert (row.sign, row.share) == (sign, 0.5 if low_harms else 0.25)
        assert row.rule.threshold == pytest.approx(0.5125 if low_harms else 0.26875, abs=1e-6)


def test_a_cells_part_of_the_budget_is_its_part_of_the_entries(found: Found) -> None:
    half = np.log1p(0.003 / 2) / len(NATS)
    fits, does_not = (found(lambda *_, each=part * half: each) for part in (0.99, 1.01))
    assert [row.share for row in fits.cells] == [1.0, 1.0]
    assert [row.share for row in does_not.cells] == [0.75, 0.75]
    assert (fits.attempts, does_not.attempts) == (1, 1)


def test_what_holds_on_the_search_alone_is_tightened_on_fresh_clips(found: Found) -> None:
    report = found(lambda where, nats, part: float(part > 0 and nats > 0.6))
    assert report.attempts == 3  # 1.0 and 0.75 fail
    assert [row.share for row in report.cells] == [0.5, 0.5]
    assert report.joint.high <= 0.003
    assert report.calibration is not None


def test_where_nothing_is_safe_no_calibration_comes_of_it(found: Found) -> None:
    late = found(lambda where, nats, part: float(part > 0))
    at_once = found(lambda *_: 1.0)
    for report, attempts in ((late, len(SHARES) + 1), (at_once, 1)):
        assert report.calibration is None
        assert [row.rule for row in report.cells] == [None, None]
        assert (report.aliased_share, report.attempts) == (0.0, attempts)
        assert report.random.value > 0.003  # the control is there all the same
        assert report.random_share == pytest.approx(SHARES[-1], abs=0.05)


def test_the_control_takes_as_many_entries_on_the_same_clips(
    loaded: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Known(lambda where, nats, _: 0.1 * (nats > 0.6), 0.0)
    monkeypatch.setattr(calibrating, "Runs", lambda *_: known)
    report = calibrate(loaded, CalibrationPlan(0.003, clips=CLIPS, seed=5))
    assert known.rules[-1] == AtRandom(report.aliased_share, 5)
    assert report.random_share == pytest.approx(report.aliased_share, abs=0.05)
    assert report.random.low > report.joint.high


def test_the_guard_is_the_furthest_alias_of_the_verification(found: Found) -> None:
    report = found(lambda where, nats, _: float(nats > 0.6))
    audio, video = (row.rule for row in report.cells)
    assert audio is not None
    assert video is not None
    assert audio.guard == pytest.approx(0.5, abs=2e-6)
    assert video.guard == pytest.approx(2.0, abs=2e-6)
    assert video.guard > 2.0


def test_the_shadow_checks_budget_is_twice_what_was_measured_but_not_below_its_default(
    found: Found,
) -> None:
    for apart, budget in ((0.0, SHADOW_BUDGET_NATS), (0.3, 0.6)):
        calibration = found(lambda *_: 0.0, apart=apart).calibration
        assert calibration is not None
        assert calibration.shadow_budget == budget


def test_the_file_tells_how_it_was_made(found: Found) -> None:
    report = found(lambda *_: 1e-6)
    assert report.calibration is not None
    made = report.calibration.made
    assert made is not None
    assert (made.budget, made.clips, made.seconds, made.seed) == (0.003, CLIPS, 8, 0)
    assert (made.loss, made.loss_high) == (report.joint.value, report.joint.high)
    assert made.random_loss == report.random.value


@pytest.mark.parametrize("loss", [0.0, -0.1, float("inf"), float("nan")])
def test_a_loss_that_allows_nothing_or_anything_is_refused(loss: float) -> None:
    with pytest.raises(PlanError, match="give one above 0"):
        CalibrationPlan(loss)


# ---------------------------------------------------------------- real runs
def test_no_two_sets_of_clips_share_one_nor_any_with_the_held_out_ones(loaded: Checkpoint) -> None:
    plan = CalibrationPlan(0.003, clips=4, seconds=2)
    runs = Runs(loaded, plan, lambda: None)
    names = [clip.generate.request_id for part in range(3) for clip in runs.clips(part)]
    held = [draw(kind, 2, number, seed=0).name for kind in Kind for number in range(8)]
    assert len(set(names)) == 12
    assert not set(names) & set(held)
    assert [clip.generate.request_id for clip in runs.clips(1)] == names[4:8]


def test_too_short_clips_are_refused_with_what_to_do(loaded: Checkpoint) -> None:
    with pytest.raises(PlanError, match="--seconds"):
        calibrate(loaded, CalibrationPlan(0.003, clips=2, seconds=1))


def test_a_model_whose_layers_have_nothing_to_share_gets_no_calibration(
    shipped_checkpoint: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped model, saying just what it said, but whose layer 0 keeps larger values."""
    monkeypatch.setattr(calibrating, "SHARES", (1.0,))
    loaded = checkpoints.load(shipped_checkpoint)
    plan = CalibrationPlan(0.003, clips=2)
    runs = Runs(loaded, plan, lambda: None)
    clips, never = runs.clips(0), LowEntropy(dict.fromkeys(Modality, -1.0))
    before = runs.run(clips, never).nats
    own_scale(loaded)
    assert runs.run(clips, never).nats == pytest.approx(before, abs=1e-4)
    report = calibrate(loaded, plan)
    assert report.calibration is None
    assert all(row.loss.value > 0.003 for row in report.cells)
