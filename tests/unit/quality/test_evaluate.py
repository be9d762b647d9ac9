"""Evaluations of a checkpoint whose text never ends: nothing is right, but all is counted."""

from dataclasses import replace

import pytest

from monitors.contract import KvRung, MediaRung
from runtime.engine.engine import Engine
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.quality.evaluate import SPARE_TOKENS, EvaluationFailed, evaluate
from runtime.quality.held_out import draw
from runtime.quality.plan import KvPolicy, Plan, PlanError
from runtime.quality.score import Report
from runtime.quality.tasks import Kind, parts_of, question_part
from runtime.residents.port import Failed, Turn
from tests.unit.model.dense import DenseThinker

PLAN = Plan(
    tasks=(Kind.PAIRS, Kind.TEXT),
    policy=KvPolicy.named("native"),
    count=3,
    seconds=4,
    pool_bytes=64_000_000,
)
CLIPS = replace(PLAN, tasks=(Kind.PAIRS,), seconds=8)


def policy(name: str) -> Plan:
    return replace(CLIPS, policy=KvPolicy.named(name))


@pytest.fixture(scope="module")
def planned(loaded: Checkpoint) -> Report:
    """What comes of `PLAN`."""
    return evaluate(loaded, PLAN)


@pytest.fixture(scope="module")
def native(loaded: Checkpoint) -> Report:
    """Of `CLIPS`, on no rung and with native pages."""
    return evaluate(loaded, CLIPS)


def texts(report: Report) -> list[str]:
    return [answer.text for task in report.tasks for answer in task.answers]


def test_the_same_plan_gives_the_same_report_and_another_seed_another(
    loaded: Checkpoint, planned: Report
) -> None:
    report = planned
    assert evaluate(loaded, PLAN) == report
    other = evaluate(loaded, replace(PLAN, seed=1))
    assert [t.nats for t in other.tasks] != [t.nats for t in report.tasks]
    assert (report.version, report.weights_digest) == (loaded.version, loaded.weights_digest)
    assert [(t.task, t.n) for t in report.tasks] == [(Kind.PAIRS, 3), (Kind.TEXT, 3)]
    assert [a.number for a in report.tasks[0].answers] == [0, 1, 2]


def test_answers_are_the_models_own_greedy_ones(loaded: Checkpoint, planned: Report) -> None:
    told = []
    for number in range(PLAN.count):
        sample = draw(Kind.PAIRS, PLAN.seconds, number, seed=0)
        parts, arrays = parts_of(sample.media, "dense")
        turn = Turn(role="user", parts=(*parts, *question_part(sample.question)))
        prompt = Processor(loaded).prompt([turn], arrays)
        right = sample.question.answer
        limit = len(loaded.tokenizer.encode(right, add_special_tokens=False)) + 1 + SPARE_TOKENS
        tokens, _ = DenseThinker(loaded).text(prompt, limit)
        said = [token for token in tokens if token != loaded.config.im_end_token_id]
        told.append((right, loaded.tokenizer.decode(said)))
    assert [(a.right, a.text) for a in planned.tasks[0].answers] == told


def test_progress_ends_at_all_samples(loaded: Checkpoint) -> None:
    seen: list[tuple[int, int]] = []
    evaluate(loaded, replace(PLAN, tasks=(Kind.TEXT,), count=9), lambda *at: seen.append(at))
    assert seen == [(0, 9), (8, 9), (9, 9)]


def test_speech_is_heard_only_where_it_is_asked_for(loaded: Checkpoint) -> None:
    plan = replace(PLAN, tasks=(Kind.TEXT,), count=2)
    silent, spoken = evaluate(loaded, plan), evaluate(loaded, replace(plan, speech=True))
    assert all(a.spoken is None for a in silent.tasks[0].answers)
    assert all(a.spoken is not None for a in spoken.tasks[0].answers)
    assert spoken.tasks[0].read_back is not None
    assert texts(silent) == texts(spoken)


def test_a_checkpoint_without_calibration_is_measured_without_reuse(loaded: Checkpoint) -> None:
    use = evaluate(loaded, replace(PLAN, policy=KvPolicy())).kv_use
    assert (use.rule, use.eligible, use.aliased_share) == ("off: uncalibrated", None, None)
    assert use.bytes_per_token == use.native_bytes_per_token


def test_lowest50_and_its_control_alias_about_half(loaded: Checkpoint) -> None:
    low, control = (evaluate(loaded, policy(name)) for name in ("lowest50", "random50"))
    for use in (low.kv_use, control.kv_use):
        assert use.eligible is not None
        assert use.eligible > 50
        assert use.aliased_share == pytest.approx(0.5, abs=0.2)
        assert use.bytes_per_token < use.native_bytes_per_token
    assert low.kv_use.eligible == control.kv_use.eligible  # the same entries, chosen otherwise
    assert low.tasks[0].nats != control.tasks[0].nats


def test_the_articles_thresholds_are_reuse(loaded: Checkpoint) -> None:
    rule = evaluate(loaded, policy("reuse")).kv_use.rule
    assert rule == "audio < 0.35 nats, image < 0.42 nats, text < 0.28 nats, video < 0.42 nats"


def test_int8_shrinks_pages_and_moves_the_likelihood_a_little(
    loaded: Checkpoint, native: Report
) -> None:
    int8 = evaluate(loaded, policy("int8"))
    assert int8.policy == "native+int8"
    assert int8.kv_use.bytes_per_token < 0.5 * native.kv_use.bytes_per_token
    before, after = native.tasks[0].nats.value, int8.tasks[0].nats.value
    assert after != before
    assert after == pytest.approx(before, rel=0.02)


def test_a_rung_changes_what_is_seen_and_how_it_is_kept(loaded: Checkpoint, native: Report) -> None:
    sound, small = (evaluate(loaded, replace(CLIPS, rung=rung)) for rung in (2, 4))
    assert small.level.media is MediaRung.P160_8K
    assert (sound.kv, small.kv) == (KvRung.NATIVE, KvRung.INT8)
    assert len({r.tasks[0].nats.value for r in (native, sound, small)}) == 3
    assert (
        evaluate(loaded, replace(CLIPS, rung=1)).tasks == native.tasks
    )  # shedding drops none here


def test_an_answer_that_the_engine_fails_is_no_wrong_answer(
    loaded: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(engine: Engine) -> list[Failed]:
        (name, *_) = engine._requests
        return [Failed(request_id=name, kind="engine", message="out of luck")]

    monkeypatch.setattr(Engine, "step", failing)
    with pytest.raises(EvaluationFailed, match="out of luck"):
        evaluate(loaded, PLAN)


def test_a_pool_without_room_for_a_page_is_refused_in_words(loaded: Checkpoint) -> None:
    with pytest.raises(PlanError, match="too small: give it at least"):
        evaluate(loaded, replace(PLAN, pool_bytes=1000))
