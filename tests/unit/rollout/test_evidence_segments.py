"""A change of level or epoch begins a segment: blame goes on over it, health is choosier."""

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import (
    Evidence,
    EvidenceBody,
    Level,
    MediaRung,
    RequestFinished,
    ResidencySampled,
    ResidentChanged,
)
from monitors.labels import Modality, Outcome, ResidentState
from rollout.fold import EvidenceFold
from rollout.sequential import Numbers, Verdict
from tests.unit.rollout.test_evidence_fold import (
    FAULTED,
    HARD,
    JUDGED_FROM,
    OK,
    PLAN,
    WARM_FROM,
    B,
    crossed,
    entry,
    reached,
)

LOW = Level(media=MediaRung.P360_8K)


@pytest.fixture
def fold() -> EvidenceFold:
    return a_fold()


def a_fold() -> EvidenceFold:
    fold = EvidenceFold(PLAN, WARM_FROM)
    fold.judge_from(JUDGED_FROM)
    return fold


def line(fold: EvidenceFold, name: str) -> Numbers:
    return next(numbers for numbers in fold.numbers() if numbers.line == name)


def request(number: int, misses: float, *, warm: bool = True, **other: object) -> list[Evidence]:
    """A request that found all but a share of its attention mass on the device."""
    found = ResidencySampled(
        modality=Modality.TEXT, hit_mass=4.0 * (1.0 - misses), lookup_mass=4.0, warm=warm
    )
    return [entry(body, f"r{number}", session="", **other) for body in (found, OK)]


def test_blame_multiplies_over_segments(fold: EvidenceFold) -> None:
    whole = a_fold()
    for i in range(6):
        segment = {"level": LOW if i % 2 else Level(), "pool_epoch": 1 + i // 2}
        fold.take([entry(FAULTED, f"r{i}", **segment)])
        whole.take([entry(FAULTED, f"r{i}")])
    assert line(fold, "faults").e == line(whole, "faults").e
    assert fold.judgement().verdict is Verdict.BREACH


def test_health_counts_while_both_are_at_one_level_whichever_it_is(fold: EvidenceFold) -> None:
    for level, number in ((LOW, 0), (Level(), 10_000)):
        fold.take([entry(OK, "b", level=level, **B)])
        before = line(fold, "faults").pass_e
        other = Level() if level == LOW else LOW
        fold.take([entry(OK, f"r{number + i}", level=other) for i in range(500)])
        assert line(fold, "faults").pass_e == before
        fold.take([entry(OK, f"r{number + 5_000 + i}", level=level) for i in range(500)])
        assert line(fold, "faults").pass_e > before


def test_after_an_epoch_change_the_cache_line_waits_until_the_pool_is_warm(
    fold: EvidenceFold,
) -> None:
    changed = ResidentChanged(state=ResidentState.READY, pool_epoch=2, detail="flushed")
    fold.take([entry(changed, "", session="", pool_epoch=2)])
    for i in range(40):
        fold.take(request(i, 1.0, warm=False, pool_epoch=2))
        fold.take(request(100 + i, 0.0, warm=False, pool_epoch=2))
    assert line(fold, "residency").n == 0
    for i in range(40):
        fold.take(request(200 + i, 1.0, pool_epoch=2))
    assert [numbers.line for numbers in fold.judgement().breaches] == ["residency"]


def test_a_poor_cache_is_called_by_whole_sessions_once_their_slot_is_over(
    fold: EvidenceFold,
) -> None:
    for i in range(30):
        for k, misses in enumerate((0.1, 0.5, 0.9)):
            sampled, ended = request(10 * i + k, misses)
            at = {"session": f"s{i}", "wall": 1.0 * k}
            fold.take([msgspec.structs.replace(each, **at) for each in (sampled, ended)])
    assert fold.judgement().breaches == ()
    fold.take([entry(OK, "late", wall=120.0)])
    assert [numbers.line for numbers in fold.judgement().breaches] == ["residency"]
    assert line(fold, "residency").n == 90


Requests = list[tuple[list[EvidenceBody], bool]]
bodies = st.sampled_from([HARD, FAULTED, OK, reached(0.1), reached(0.5), crossed(0.25)])
requests = st.lists(
    st.tuples(st.lists(bodies, min_size=1, max_size=3), st.booleans()), min_size=2, max_size=25
)


def told(requests: Requests) -> list[list[Evidence]]:
    return [
        [entry(body, f"r{i}", session="", **(B if on_b else {})) for body in bodies]
        for i, (bodies, on_b) in enumerate(requests)
    ]


@settings(max_examples=50, deadline=None)
@given(requests=requests, seed=st.integers(0, 2**32))
def test_the_order_of_requests_within_a_batch_changes_no_final_e(
    requests: Requests, seed: int
) -> None:
    """Each request's own entries keep their order. Attribution is of an order: shares grow."""
    groups = told(requests)
    straight, shuffled = a_fold(), a_fold()
    straight.take([each for group in groups for each in group])
    random.Random(seed).shuffle(groups)
    shuffled.take([each for group in groups for each in group])
    both = (straight.numbers(), shuffled.numbers()), (straight.baseline(), shuffled.baseline())
    for ours, theirs in both:
        for one, other in zip(ours, theirs, strict=True):
            assert (one.n, one.events) == (other.n, other.events)
            assert one.e == pytest.approx(other.e)
            assert one.pass_e == pytest.approx(other.pass_e)


@settings(max_examples=50, deadline=None)
@given(requests=requests, cuts=st.sets(st.integers(0, 75)))
def test_split_batches_are_the_same_to_the_bit(requests: Requests, cuts: set[int]) -> None:
    entries = [each for group in told(requests) for each in group]
    whole, split = a_fold(), a_fold()
    whole.take(entries)
    bounds = [0, *sorted(cuts), len(entries)]
    for begin, end in itertools.pairwise(bounds):
        split.take(entries[begin:end])
    assert split.save() == whole.save()


@settings(max_examples=50, deadline=None)
@given(requests=requests)
def test_with_the_arms_swapped_the_figures_are(
    requests: Requests,
) -> None:
    swapped = [(bodies, not on_b) for bodies, on_b in requests]
    one, other = a_fold(), a_fold()
    for fold, given_to in ((one, requests), (other, swapped)):
        fold.take([each for group in told(given_to) for each in group])
    assert one.baseline() == other.numbers()


def test_an_operators_requests_tell_of_no_fault_but_of_the_level(fold: EvidenceFold) -> None:
    fold.take([entry(OK, "b", level=LOW, operator=True, **B)])
    fold.take([entry(OK, f"r{i}", level=LOW) for i in range(400)])
    assert line(fold, "faults").pass_e > 1.0
    assert fold.baseline()[0].n == 0
    refused = RequestFinished(outcome=Outcome.REFUSED, faulted=False)
    fold.take([entry(refused, "x")])
    assert line(fold, "faults").n == 400
