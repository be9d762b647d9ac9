"""A level that A needs and B does not is a breach, in the log's own time."""

import msgspec
import pytest

from monitors.contract import (
    Admission,
    Evidence,
    EvidenceBody,
    KvRung,
    Level,
    MediaRung,
    RequestFinished,
    ResidentChanged,
    SessionClass,
    Shed,
)
from monitors.labels import Outcome, Phase, ResidentState
from monitors.redlines import RedLines
from rollout.capacity import NOTHING_SHOWN
from rollout.fold import EvidenceFold, FoldState
from rollout.phases import RolloutState, Signals, decide
from rollout.plan import Cause, cause_of, make_plan
from rollout.sequential import Verdict

PLAN = make_plan(RedLines(), stable="b", canary="a", version="v2")
DWELL_S = PLAN.level_dwell_s
OK = RequestFinished(outcome=Outcome.OK, faulted=False)
CHANGED = ResidentChanged(state=ResidentState.READY, pool_epoch=1, detail="")
MEDIA = Level(media=MediaRung.P360_8K)
INT8 = Level(kv=KvRung.INT8)


class Story:
    """Evidence of A and B, told in order."""

    def __init__(self) -> None:
        self.fold = EvidenceFold(PLAN, 1)
        self.fold.judge_from(2)
        self.requests = 0

    def tell(self, resident: str, at: float, level: Level, **other: object) -> None:
        self.requests += 1
        whole: dict[str, object] = {
            "seq": self.requests,
            "wall": at,
            "resident": resident,
            "version": "v2" if resident == "a" else "v1",
            "session": f"s{self.requests}",
            "request_id": f"r{self.requests}",
            "pool_epoch": 1,
            "route_epoch": 2,
            "level": level,
            "operator": False,
            "body": OK,
            **other,
        }
        self.fold.take([Evidence(**whole)])  # type: ignore[arg-type]

    def both(
        self, since: float, until: float, a: Level, b: Level | None = None, **other: object
    ) -> None:
        """A request on each every five seconds."""
        at = since
        while at <= until:
            self.tell("b", at, b or Level(), **other)
            self.tell("a", at, a, **other)
            at += 5.0

    @property
    def parts(self) -> list[str]:
        return [needed.part for needed in self.fold.judgement().levels]


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize(
    ("level", "cause"),
    [
        (MEDIA, Cause.LATENCY),
        (Level(shed=Shed.ON), Cause.LATENCY),
        (Level(admission=Admission.LIMITED), Cause.LATENCY),
        (INT8, Cause.CACHE),
    ],
)
def test_a_rung_that_a_alone_stands_on_for_longer_than_a_dwell_is_a_breach(
    story: Story, level: Level, cause: Cause
) -> None:
    story.both(0.0, DWELL_S, level)
    assert story.fold.judgement().verdict is not Verdict.BREACH
    story.both(DWELL_S + 5.0, DWELL_S + 5.0, level)
    judged = story.fold.judgement()
    assert judged.verdict is Verdict.BREACH
    assert (judged.breaches, judged.quarantine) == ((), True)
    assert [cause_of(needed.line) for needed in judged.levels] == [cause]
    assert "A has needed" in judged.levels[0].in_words()


def test_the_dwell_is_that_of_the_ladder_and_the_window_that_may_have_moved_it() -> None:
    lines = RedLines()
    assert lines.ladder.dwell_s + lines.latency.window_s == DWELL_S


def test_a_rung_that_both_stand_on_is_none(story: Story) -> None:
    story.both(0.0, 4 * DWELL_S, MEDIA, MEDIA)
    story.both(4 * DWELL_S, 8 * DWELL_S, Level(), MEDIA)
    assert story.parts == []


def test_a_rung_that_is_given_back_in_time_starts_anew(story: Story) -> None:
    story.both(0.0, DWELL_S - 5.0, MEDIA)
    story.both(DWELL_S, DWELL_S, Level())
    story.both(DWELL_S + 5.0, 2 * DWELL_S, MEDIA)
    assert story.parts == []


def test_a_human_who_holds_it_needs_it_and_not_a(story: Story) -> None:
    story.both(0.0, 3 * DWELL_S, MEDIA, by_hand=("media",))
    assert story.parts == []
    story.both(3 * DWELL_S, 6 * DWELL_S, MEDIA)
    assert story.parts == [], "the ladder goes on from where the hand left it"
    story.both(6 * DWELL_S, 6 * DWELL_S, Level())
    story.both(6 * DWELL_S + 5.0, 8 * DWELL_S, MEDIA)
    assert story.parts == ["media"]


def test_a_hand_on_one_part_excuses_no_other(story: Story) -> None:
    both = Level(media=MediaRung.P360_8K, kv=KvRung.INT8)
    story.both(0.0, DWELL_S + 5.0, both, by_hand=("media",))
    assert story.parts == ["kv"]


def test_levels_are_compared_class_by_class(story: Story) -> None:
    batch = {"session_class": SessionClass.BATCH}
    for at in range(0, int(DWELL_S) + 10, 5):
        story.tell("b", float(at), MEDIA, **batch)
        story.tell("b", float(at), Level())
        story.tell("a", float(at), MEDIA, **batch)
        story.tell("a", float(at), Level())
    assert story.parts == []
    story.both(200.0, 200.0 + DWELL_S + 5.0, Level(media=MediaRung.P160_8K), MEDIA, **batch)
    needed = story.fold.judgement().levels
    assert [each.session_class for each in needed] == [SessionClass.BATCH]


def test_without_traffic_on_b_nothing_is_known_of_what_b_would_need(story: Story) -> None:
    story.tell("b", 0.0, Level())
    for at in range(5, 400, 5):
        story.tell("a", float(at), MEDIA)
        story.tell("b", float(at), Level(), body=CHANGED, session="", request_id="")
    assert story.parts == []


def test_with_most_of_the_load_a_may_need_more_than_b(story: Story) -> None:
    at = 0.0
    while at < 3 * DWELL_S:
        story.tell("b", at, Level())
        for _ in range(3):
            story.tell("a", at, MEDIA)
        at += 5.0
    assert story.parts == []


def test_in_the_warm_up_and_over_a_gap_no_time_is_counted(story: Story) -> None:
    story.both(0.0, 2 * DWELL_S, INT8, route_epoch=1)
    assert story.parts == []
    story.both(2 * DWELL_S, 3 * DWELL_S - 5.0, INT8)
    story.fold.missed_some()
    story.both(3 * DWELL_S, 4 * DWELL_S - 5.0, INT8)
    assert story.parts == []
    story.both(4 * DWELL_S, 4 * DWELL_S + 10.0, INT8)
    assert story.parts == ["kv"]


def test_a_wait_that_is_saved_goes_on_where_it_was(story: Story) -> None:
    story.both(0.0, DWELL_S - 5.0, MEDIA)
    state = msgspec.json.decode(msgspec.json.encode(story.fold.save()), type=FoldState)
    story.fold = EvidenceFold.restore(PLAN, state)
    story.fold.judge_from(2)
    story.both(DWELL_S, DWELL_S + 5.0, MEDIA)
    assert story.parts == ["media"]
    again = EvidenceFold.restore(PLAN, story.fold.save())
    assert again.judgement().levels == story.fold.judgement().levels


@pytest.mark.parametrize("jump", [7_200.0, -7_200.0])
def test_a_clock_that_jumps_is_no_dwell(story: Story, jump: float) -> None:
    at = 10_000.0
    story.both(at, at + 20.0, MEDIA)
    story.both(at + jump, at + jump + 20.0, MEDIA)
    assert story.parts == []
    story.both(at + jump + 25.0, at + jump + 2 * DWELL_S, MEDIA)
    assert story.parts == ["media"]


@pytest.mark.parametrize("body", [OK, CHANGED])
def test_requests_and_changes_of_a_level_are_both_seen(story: Story, body: EvidenceBody) -> None:
    for at in range(0, int(DWELL_S) + 10, 5):
        story.tell("b", float(at), Level())
        story.tell("a", float(at), MEDIA, body=body)
    assert story.parts == ["media"]


def test_a_needed_level_rolls_back_by_the_cause_of_its_part_in_words_that_say_so(
    story: Story,
) -> None:
    story.both(0.0, DWELL_S + 5.0, INT8)
    state = RolloutState(phase=Phase.CANARY, plan=PLAN, weight=5)
    signals = Signals(
        judgement=story.fold.judgement(), fresh=True, canary_ready=True, stable_ready=True,
        canary_died=False, routed=True, identity=None, capacity=NOTHING_SHOWN, alarm=None,
        alarm_lack=None,
    )  # fmt: skip
    decision = decide(state, signals, 1.0)
    assert (decision.phase, decision.cause) == (Phase.ROLLING_BACK, Cause.CACHE)
    assert decision.quarantine
    said = "A has needed kv at int8 for interactive sessions, and B, at native, has not"
    assert decision.reasons == (f"level_kv: for 95 s {said}",)
