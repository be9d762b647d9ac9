"""Which entries of the evidence log count, on which line, and how often."""

import itertools
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import (
    Evidence,
    EvidenceBody,
    FaultFound,
    Level,
    LineCrossed,
    MediaRung,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
    ResidentChanged,
    SessionClass,
)
from monitors.labels import (
    Detector,
    Fault,
    Grade,
    Milestone,
    Modality,
    Origin,
    Outcome,
    ResidentState,
)
from monitors.redlines import RedLines
from rollout.fold import EvidenceFold, FoldState
from rollout.plan import make_plan
from rollout.sequential import Numbers, Verdict

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2", bake_s=100.0)
AUDIO, TOKEN = Milestone.FIRST_AUDIO_PACKET, Milestone.FIRST_TOKEN
OK = RequestFinished(outcome=Outcome.OK, faulted=False)
FAULTED = RequestFinished(outcome=Outcome.OK, faulted=True)
HARD = FaultFound(
    fault=Fault.SPEECH_TRUNCATED,
    grade=Grade.HARD,
    origin=Origin.OUTPUT,
    detector=Detector.SPEECH,
    rule="r",
    detail="d",
)
WARM_FROM, JUDGED_FROM = 5, 6


def entry(body: EvidenceBody, request: str = "r1", **other: object) -> Evidence:
    whole: dict[str, object] = {
        "seq": 1,
        "wall": 0.0,
        "resident": "a",
        "version": "v2",
        "session": f"session of {request}",
        "request_id": request,
        "pool_epoch": 1,
        "route_epoch": JUDGED_FROM,
        "level": Level(),
        "operator": False,
        "body": body,
        **other,
    }
    return Evidence(**whole)  # type: ignore[arg-type]


@pytest.fixture
def fold() -> EvidenceFold:
    fold = EvidenceFold(PLAN, WARM_FROM)
    fold.judge_from(JUDGED_FROM)
    return fold


def line(fold: EvidenceFold, name: str) -> Numbers:
    return next(numbers for numbers in fold.numbers() if numbers.line == name)


def counts(fold: EvidenceFold) -> dict[str, tuple[int, float]]:
    """(observations, bad ones) of each line that heard anything."""
    return {n.line: (n.n, n.events) for n in fold.numbers() if n.n}


def reached(seconds: float, milestone: Milestone = AUDIO) -> MilestoneReached:
    return MilestoneReached(milestone=milestone, seconds=seconds)


def crossed(line_s: float, milestone: Milestone = AUDIO) -> LineCrossed:
    return LineCrossed(milestone=milestone, line_s=line_s)


def test_a_hard_fault_counts_at_once_and_the_requests_ending_does_not_count_again(
    fold: EvidenceFold,
) -> None:
    fold.take([entry(HARD)])
    assert counts(fold) == {"faults": (1, 1.0)}
    fold.take([entry(HARD), entry(FAULTED), entry(OK, "r2")])
    assert counts(fold) == {"faults": (2, 1.0)}


@pytest.mark.parametrize("change", [{"grade": Grade.SOFT}, {"origin": Origin.INPUT}])
def test_soft_faults_and_the_clients_own_do_not_count(
    fold: EvidenceFold, change: dict[str, object]
) -> None:
    fold.take([entry(msgspec.structs.replace(HARD, **change)), entry(OK)])
    assert counts(fold) == {"faults": (1, 0.0)}


@pytest.mark.parametrize(
    ("outcome", "faulted", "expected"),
    [
        (Outcome.FAILED, True, (1, 1.0)),
        (Outcome.LOST, True, (1, 1.0)),
        (Outcome.CANCELLED, False, (1, 0.0)),
        (Outcome.REFUSED, False, None),
        (Outcome.REPLAYED, False, None),
        (Outcome.REPLAYED, True, (1, 1.0)),
    ],
)
def test_each_ending_counts_as_what_it_is(
    fold: EvidenceFold, outcome: Outcome, faulted: bool, expected: tuple[int, float] | None
) -> None:
    fold.take([entry(RequestFinished(outcome=outcome, faulted=faulted))])
    assert counts(fold).get("faults") == expected


def test_a_request_that_was_replayed_counts_on_each_resident_by_itself(fold: EvidenceFold) -> None:
    lost = RequestFinished(outcome=Outcome.REPLAYED, faulted=True)
    replay = {"resident": "b", "version": "v1"}
    fold.take([entry(HARD, **replay), entry(lost), entry(FAULTED, **replay)])
    assert counts(fold) == {"faults": (1, 1.0)}
    assert [(n.n, n.events) for n in fold.baseline() if n.n] == [(1, 1.0)]


def test_what_a_left_unended_takes_no_crossing_out_of_b(fold: EvidenceFold) -> None:
    replay = {"resident": "b", "version": "v1"}
    fold.take([entry(crossed(0.25)), entry(crossed(0.25), **replay), entry(OK, **replay)])
    on_b = {n.line: (n.n, n.events) for n in fold.baseline() if n.n}
    assert on_b["first_packet"] == counts(fold)["first_packet"] == (1, 1.0)


def test_a_copys_ending_is_evidence_like_any_other(fold: EvidenceFold) -> None:
    fold.take([entry(FAULTED, mirror=True)])
    assert counts(fold) == {"faults": (1, 1.0)}


@pytest.mark.parametrize(
    ("bodies", "first_packet", "degrade"),
    [
        ([reached(0.2)], (1, 0.0), (1, 0.0)),
        ([crossed(0.25), reached(0.3)], (1, 1.0), (1, 0.0)),
        ([crossed(0.25), crossed(0.4), reached(0.5)], (1, 1.0), (1, 1.0)),
        ([crossed(0.25)], (1, 1.0), None),
        ([crossed(0.4)], (1, 1.0), (1, 1.0)),
        ([reached(0.5)], (1, 1.0), (1, 1.0)),
        ([reached(0.25)], (1, 0.0), (1, 0.0)),
    ],
)
def test_a_latency_counts_once_on_each_line_at_the_first_word_about_it(
    fold: EvidenceFold,
    bodies: list[EvidenceBody],
    first_packet: tuple[int, float],
    degrade: tuple[int, float] | None,
) -> None:
    fold.take([entry(body) for body in bodies])
    seen = counts(fold)
    assert seen.get("first_packet") == first_packet
    assert seen.get("degrade_first_audio_packet") == degrade


def test_a_late_first_token_is_no_matter_of_the_first_packet_line(fold: EvidenceFold) -> None:
    fold.take([entry(crossed(0.25, TOKEN)), entry(reached(0.3, TOKEN))])
    assert counts(fold) == {"degrade_first_token": (1, 0.0)}


def test_residency_is_one_requests_over_its_modalities_and_only_when_warm(
    fold: EvidenceFold,
) -> None:
    def sampled(modality: Modality, hit: float, warm: bool = True) -> ResidencySampled:
        return ResidencySampled(modality=modality, hit_mass=hit, lookup_mass=4.0, warm=warm)

    fold.take([entry(sampled(Modality.TEXT, 4.0)), entry(sampled(Modality.VIDEO, 2.0)), entry(OK)])
    fold.take([entry(sampled(Modality.TEXT, 0.0, warm=False), "r2"), entry(OK, "r2")])
    assert line(fold, "residency").n == 1
    assert line(fold, "residency").events == pytest.approx(0.25)


@pytest.mark.parametrize(
    "other",
    [
        {"operator": True},
        {"route_epoch": WARM_FROM - 1},
        {"version": "v1"},
        {"resident": "c"},
        {"resident": "b", "version": "v1"},
    ],
)
def test_what_is_not_the_canarys_own_traffic_of_this_rollout_is_not_its_evidence(
    fold: EvidenceFold, other: dict[str, object]
) -> None:
    fold.take([entry(HARD, **other), entry(reached(9.0), **other), entry(FAULTED, **other)])
    assert counts(fold) == {}
    assert fold.judgement().requests == 0


def test_in_the_warm_up_only_faults_count(fold: EvidenceFold) -> None:
    fold.take([entry(reached(9.0), route_epoch=WARM_FROM), entry(FAULTED, route_epoch=WARM_FROM)])
    assert counts(fold) == {"faults": (1, 1.0)}


def test_only_the_canarys_death_is_told(fold: EvidenceFold) -> None:
    dead = ResidentChanged(state=ResidentState.DEAD, pool_epoch=None, detail="")
    loading = ResidentChanged(state=ResidentState.LOADING, pool_epoch=None, detail="")
    assert fold.take([entry(dead)])
    assert not fold.take([entry(loading), entry(dead, resident="b", version="v1")])


def feed(
    fold: EvidenceFold, count: int, body: EvidenceBody, start: int = 0, **other: object
) -> None:
    fold.take([entry(body, f"{other}{i}", **other) for i in range(start, start + count)])


B = {"resident": "b", "version": "v1"}


def interleaved(fold: EvidenceFold, turns: int, share: float, a: float, b: float) -> None:
    """Traffic of which A has this share, with these fault rates, evenly spread."""
    given = faulted_a = faulted_b = 0
    for i in range(turns):
        on_a = int((i + 1) * share) > given
        given += on_a
        n, rate, faulted = (given, a, faulted_a) if on_a else (i + 1 - given, b, faulted_b)
        bad = int(n * rate) > faulted
        faulted_a, faulted_b = faulted_a + (bad and on_a), faulted_b + (bad and not on_a)
        body = FAULTED if bad else OK
        fold.take([entry(body, f"r{i}", **({} if on_a else B))])


def past(figures: Iterable[Numbers]) -> list[str]:
    return [numbers.line for numbers in figures if numbers.verdict is Verdict.BREACH]


def test_faults_that_b_does_not_share_are_as_blame(fold: EvidenceFold) -> None:
    interleaved(fold, 800, 0.05, a=0.5, b=0.002)
    judged = fold.judgement()
    assert judged.verdict is Verdict.BREACH
    assert [numbers.line for numbers in judged.breaches] == ["faults"]
    assert past(fold.baseline()) == []
    assert judged.quarantine


def test_without_anything_of_b_to_compare_with_a_is_put_under_quarantine(
    fold: EvidenceFold,
) -> None:
    feed(fold, 10, FAULTED)
    assert fold.judgement().quarantine


def test_a_rate_that_b_shares_is_held_without_quarantine_and_b_is_told_of(
    fold: EvidenceFold,
) -> None:
    interleaved(fold, 2_000, 0.05, a=0.2, b=0.2)
    judged = fold.judgement()
    assert judged.verdict is Verdict.BREACH
    assert past(fold.baseline()) == ["faults"]
    assert not judged.quarantine


def test_where_b_is_past_its_line_and_a_far_worse_still_a_is_to_blame(fold: EvidenceFold) -> None:
    interleaved(fold, 2_000, 0.05, a=0.9, b=0.1)
    judged = fold.judgement()
    assert past(fold.baseline()) == ["faults"]
    assert judged.quarantine


def test_one_line_of_as_own_among_shared_ones_is_enough_for_quarantine(fold: EvidenceFold) -> None:
    interleaved(fold, 2_000, 0.05, a=0.2, b=0.2)
    feed(fold, 30, crossed(0.4), start=5_000)
    judged = fold.judgement()
    assert {numbers.line for numbers in judged.breaches} > {"faults"}
    assert judged.quarantine


def test_health_needs_every_line_that_was_seen_on_either_resident(fold: EvidenceFold) -> None:
    feed(fold, 800, OK)
    assert fold.judgement().verdict is Verdict.PASS
    feed(fold, 1, reached(0.1), **B)
    assert fold.judgement().verdict is Verdict.INCONCLUSIVE, "does A still speak at all?"
    feed(fold, 800, reached(0.1))
    assert fold.judgement().verdict is Verdict.PASS


def test_health_of_a_class_counts_while_both_have_that_class_at_one_level(
    fold: EvidenceFold,
) -> None:
    """Batch may be held worse than the rest, on either resident."""
    low, batch = Level(media=MediaRung.P160_8K), {"session_class": SessionClass.BATCH}
    feed(fold, 1, OK, **B)
    feed(fold, 1, OK, **B, **batch, level=low)
    feed(fold, 400, OK, **batch)
    feed(fold, 400, OK, level=low)
    assert fold.judgement().verdict is Verdict.INCONCLUSIVE
    feed(fold, 400, OK)
    feed(fold, 400, OK, **batch, level=low)
    assert fold.judgement().verdict is Verdict.PASS


def test_health_of_a_class_that_b_was_not_seen_to_have_does_not_count(fold: EvidenceFold) -> None:
    feed(fold, 1, OK, **B)
    feed(fold, 800, OK, session_class=SessionClass.BATCH)
    assert fold.judgement().verdict is Verdict.INCONCLUSIVE
    feed(fold, 60, FAULTED, session_class=SessionClass.BATCH)
    assert fold.judgement().verdict is Verdict.BREACH, "faults always do"


def test_a_log_of_before_there_were_classes_and_hands_still_reads() -> None:
    told = msgspec.json.decode(msgspec.json.encode(entry(OK)))
    del told["session_class"], told["by_hand"]
    assert msgspec.convert(told, Evidence).session_class is SessionClass.INTERACTIVE


def test_a_gap_in_the_log_takes_back_health_but_no_blame(fold: EvidenceFold) -> None:
    feed(fold, 800, OK)
    fold.missed_some()
    assert fold.judgement().verdict is Verdict.INCONCLUSIVE
    feed(fold, 20, FAULTED, start=1000)
    fold.missed_some()
    assert fold.judgement().verdict is Verdict.BREACH


def test_the_tests_restart_once_each_twentieth_of_the_bake(fold: EvidenceFold) -> None:
    def left() -> int:
        return fold.save().canary.tests["faults"].restarts_left

    fold.take([entry(OK, f"r{wall}", wall=float(wall)) for wall in range(0, 101, 1)])
    assert left() == 0
    calm = EvidenceFold(PLAN, WARM_FROM)
    calm.take([entry(OK, "r0", wall=0.0), entry(OK, "r1", wall=90.0), entry(OK, "r2", wall=91.0)])
    assert calm.save().canary.tests["faults"].restarts_left == 19, (
        "an idle gap does not use them up"
    )


def test_requests_that_never_end_do_not_pile_up_over_gateways(fold: EvidenceFold) -> None:
    feed(fold, 50, HARD)
    assert len(fold.save().open) == 50
    fold.new_incarnation()
    assert fold.save().open == {}


bodies = st.sampled_from([HARD, FAULTED, OK, reached(0.1), reached(0.5), crossed(0.25)])
steps = st.lists(
    st.tuples(
        bodies,
        st.integers(0, 6),
        st.sampled_from([0.0, 1.0, 9.0]),
        st.booleans(),
        st.sampled_from(SessionClass),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps, cut=st.integers(0, 40))
def test_a_fold_saved_to_bytes_between_any_two_entries_goes_on_the_same(
    steps: list[tuple[EvidenceBody, int, float, bool, SessionClass]], cut: int
) -> None:
    walls = list(itertools.accumulate(wait for _, _, wait, *_ in steps))
    entries = [
        entry(body, f"r{number}", wall=wall, session_class=asked, **(B if on_b else {}))
        for (body, number, _, on_b, asked), wall in zip(steps, walls, strict=True)
    ]
    whole, first = EvidenceFold(PLAN, WARM_FROM), EvidenceFold(PLAN, WARM_FROM)
    for each in (whole, first):
        each.judge_from(JUDGED_FROM)
    whole.take(entries)
    first.take(entries[:cut])
    state = msgspec.json.decode(msgspec.json.encode(first.save()), type=FoldState)
    second = EvidenceFold.restore(PLAN, state)
    second.judge_from(JUDGED_FROM)
    second.take(entries[cut:])
    assert second.save() == whole.save()


def test_state_of_other_lines_is_refused() -> None:
    state = EvidenceFold(PLAN, 1).save()
    state = msgspec.structs.replace(state, canary=msgspec.structs.replace(state.canary, tests={}))
    with pytest.raises(ValueError, match="not the plan's"):
        EvidenceFold.restore(PLAN, state)
