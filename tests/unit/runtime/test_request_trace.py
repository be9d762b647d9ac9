"""What is remembered of a request as it goes, and when it is over."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitors import tracing
from monitors.contract import EvidenceBody, KvRung, Level, RequestFinished
from monitors.detectors.finding import Abstained, Finding
from monitors.labels import Detector, Judgement, Keep, Origin, Outcome, Stage
from monitors.tracing import TraceContext, Tracing
from runtime.requests import Requests, UnknownRequest
from runtime.residents.port import EngineStage, Finished
from runtime.stamp import Stamp
from runtime.traces import (
    MAX_CONTENT_CHARS,
    MAX_FAULTS,
    MAX_INPUT_FAULTS,
    MAX_NOTED,
    RequestTrace,
)
from tests.support.records import CUT, END, LATE, RESIDENCY, TOKEN

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-00"}
ON_A = Stamp("a", "v2", "s", "r", 1, 4, Level())
ON_B = Stamp("b", "v1", "s", "r", 7, 5, Level())
LOST = RequestFinished(outcome=Outcome.LOST, faulted=True)


class Kept(Tracing):
    """Tracing that only remembers what it should keep."""

    def __init__(self, sample_ratio: float = 1.0) -> None:
        super().__init__(sample_ratio=sample_ratio)
        self.kept: list[Any] = []

    def begin(self, headers: Any) -> TraceContext | None:
        on = Tracing(queue=object(), sample_ratio=self._bound / 2**64)  # pyright: ignore[reportArgumentType]
        return on.begin(headers)

    def keep(self, context: Any, record: Any, content: Any) -> None:
        self.kept.append((record, content))


class Scene:
    """One request that came in at 10.0 on the clock, 1000.0 of calendar time."""

    def __init__(self, headers: dict[str, str] | None = None, ratio: float = 1.0) -> None:
        self.now = 10.0
        self.tracing = Kept(ratio)
        self.requests = Requests(
            self.tracing, clock=lambda: self.now, wall=lambda: 1000.0, capture_content=True
        )
        self.trace = self.requests.open(headers or {})

    def at(self, seconds: float) -> RequestTrace:
        self.now = 10.0 + seconds
        return self.trace

    @property
    def over(self) -> bool:
        """Whether it is in the ring, no longer under way."""
        return bool(self.requests._ring.get(self.trace.request_id))  # pyright: ignore[reportPrivateUsage]


def an_end(*stages: EngineStage) -> Finished:
    return Finished(
        request_id="r", text_reason="stop", speech_reason=None, prompt_tokens=5, cached_tokens=3,
        completion_tokens=2, codec_frames=0, samples=0, av_offset_ms=None, residency=(),
        stages=stages,
    )  # fmt: skip


def test_stages_stand_where_they_were_on_the_clock_that_gateway_and_engine_share() -> None:
    scene = Scene()
    scene.at(0.02).stage(Stage.DECODE_MEDIA, 10.0, 10.02)
    scene.trace.boarded(ON_B, KvRung.INT8)
    scene.at(0.1).departed()
    decode = EngineStage(stage=Stage.DECODE, began=10.3, ended=10.5, busy_s=0.1)
    talker = EngineStage(stage=Stage.TALKER, began=10.35, ended=10.6, busy_s=0.05)
    scene.at(0.6).finished(an_end(decode, talker))
    record = scene.trace.record()
    (leg,) = record.legs
    assert [(s.stage, s.began_s, s.ended_s) for s in (*record.stages, *leg.stages)] == [
        (Stage.DECODE_MEDIA, 0.0, 0.02),
        (Stage.DECODE, 0.3, 0.5),
        (Stage.TALKER, 0.35, 0.6),
    ]
    assert (leg.boarded_s, leg.departed_s, leg.kv) == (0.02, 0.1, KvRung.INT8)
    assert record.usage is not None
    assert (record.usage.cached_tokens, record.received) == (3, 1000.0)


def test_a_request_that_is_cut_over_has_two_legs_and_one_end() -> None:
    scene = Scene()
    scene.trace.boarded(ON_A, None)
    scene.trace.departed()
    scene.at(0.2).note(ON_A, LOST)
    assert not scene.over
    scene.trace.boarded(ON_B, None)
    scene.trace.departed()
    scene.at(0.3).note(ON_B, TOKEN)
    scene.at(0.4).note(ON_B, END)
    scene.trace.end(Outcome.OK)
    record = scene.requests.find(scene.trace.request_id)
    assert [(leg.resident, leg.left_s) for leg in record.legs] == [("a", 0.2), ("b", 0.4)]
    assert [n.body for n in record.noted()] == [LOST, TOKEN, END]
    assert record.outcome is Outcome.OK


@given(st.permutations(["told", "ending", "fault"]))
def test_a_request_is_over_when_its_client_knows_all_and_its_ending_is_written(
    order: list[str],
) -> None:
    scene = Scene(NOT_SAMPLED)
    scene.trace.boarded(ON_B, None)
    done: list[str] = []
    for act in order:
        match act:
            case "told":
                scene.trace.end(Outcome.OK)
            case "ending":
                scene.requests.note(scene_stamp(scene), END)
            case _:
                scene.requests.note(scene_stamp(scene), CUT)
        done.append(act)
        assert scene.over == ({"told", "ending"} <= set(done))
    late = order.index("fault") == 2
    assert len(scene.tracing.kept) == (0 if late else 1)  # a fault after the end is none of it


def scene_stamp(scene: Scene) -> Stamp:
    """The stamp of the leg on B, under the request's real id."""
    stamp = Stamp("b", "v1", "s", scene.trace.request_id, 7, 5, Level())
    scene.trace._legs[-1].stamp = stamp  # pyright: ignore[reportPrivateUsage]
    return stamp


def ended(scene: Scene, outcome: Outcome, *found: EvidenceBody) -> tuple[Keep, ...]:
    """Why the trace is kept; empty: it is not."""
    scene.trace.boarded(ON_B, None)
    for body in (*found, END):
        scene.trace.note(ON_B, body)
    scene.trace.end(outcome)
    kept = [record.trace.keep for record, _ in scene.tracing.kept]
    return kept[0] if kept else ()


def test_an_ordinary_request_is_kept_by_the_share_or_as_its_caller_decided() -> None:
    assert ended(Scene(ratio=1.0), Outcome.OK) == (Keep.SAMPLED,)
    assert ended(Scene(ratio=0.0), Outcome.OK) == ()
    assert ended(Scene(SAMPLED, ratio=0.0), Outcome.OK) == (Keep.SAMPLED,)
    assert ended(Scene(NOT_SAMPLED, ratio=1.0), Outcome.OK) == ()


def test_a_breach_a_fault_and_a_bad_end_are_always_kept() -> None:
    for headers in ({}, NOT_SAMPLED):
        assert ended(Scene(headers, 0.0), Outcome.OK, LATE) == (Keep.LINE,)
        assert ended(Scene(headers, 0.0), Outcome.OK, CUT) == (Keep.FAULT,)
        for outcome in set(Outcome) - {Outcome.OK}:
            assert ended(Scene(headers, 0.0), outcome) == (Keep.OUTCOME,)
    assert ended(Scene(SAMPLED), Outcome.LOST, LATE, CUT) == tuple(Keep)


def test_damaged_input_pushes_out_neither_first_outputs_nor_faults_of_ours() -> None:
    scene = Scene(ratio=0.0)
    damaged = replace(CUT, origin=Origin.INPUT, detail="a picture could not be decoded " * 5)
    happened = [*[damaged] * 60, TOKEN, LATE, RESIDENCY, *[CUT] * 60]
    assert ended(scene, Outcome.OK, *happened) == (Keep.LINE, Keep.FAULT)
    record = scene.requests.find(scene.trace.request_id)
    (leg,) = record.legs
    kept = [
        *[damaged] * MAX_INPUT_FAULTS, TOKEN, LATE, RESIDENCY,
        *[CUT] * (MAX_FAULTS - MAX_INPUT_FAULTS), END,
    ]  # fmt: skip
    assert [noted.body for noted in leg.noted] == kept
    assert leg.unnoted == 120 - MAX_FAULTS
    assert len(msgspec.msgpack.encode(record)) < 6_000


def test_the_inputs_faults_take_no_place_beyond_the_most_either() -> None:
    scene = Scene()
    damaged = msgspec.structs.replace(CUT, origin=Origin.INPUT)
    ended(scene, Outcome.OK, *[CUT] * (MAX_FAULTS - 1), *[damaged] * 3)
    (leg,) = scene.requests.find(scene.trace.request_id).legs
    assert [noted.body for noted in leg.noted][:-1] == [*[CUT] * (MAX_FAULTS - 1), damaged]
    assert leg.unnoted == 2


def test_a_fault_beyond_the_most_that_is_noted_still_keeps_the_trace() -> None:
    scene = Scene(ratio=0.0)
    assert ended(scene, Outcome.OK, *[TOKEN] * (MAX_NOTED + 1), CUT) == (Keep.FAULT,)
    (leg,) = scene.requests.find(scene.trace.request_id).legs
    assert [leg.noted[-2].body, leg.noted[-1].body] == [CUT, END]  # each with a place of its own
    assert leg.unnoted == 1


def test_an_exemplar_is_given_only_once_the_trace_is_sure_to_be_kept() -> None:
    sampled, ordinary = Scene(SAMPLED), Scene(ratio=0.0)
    assert sampled.trace.exemplar == TRACE
    assert ordinary.trace.exemplar is None
    ordinary.trace.boarded(ON_B, None)
    ordinary.trace.note(ON_B, LATE)
    assert ordinary.trace.context is not None
    assert ordinary.trace.exemplar == ordinary.trace.context.trace_id
    off = tracing.configure(None, "t")
    assert Requests(off).open(SAMPLED).exemplar == TRACE  # its caller keeps it
    assert Requests(off).open(NOT_SAMPLED).exemplar is None


def test_the_engine_gets_the_span_of_its_own_leg_as_parent() -> None:
    scene = Scene({**SAMPLED, "tracestate": "vendor=1"})
    scene.trace.boarded(ON_A, None)
    first = scene.trace.onward()
    scene.trace.boarded(ON_B, None)
    second = scene.trace.onward()
    spans = [leg.span_id for leg in scene.trace.record().legs]
    assert first == {"traceparent": f"00-{TRACE}-{spans[0]}-01", "tracestate": "vendor=1"}
    assert second["traceparent"] == f"00-{TRACE}-{spans[1]}-01"
    assert len(set(spans)) == 2


def test_the_first_error_told_counts_and_a_stream_keeps_its_status() -> None:
    scene = Scene()
    scene.trace.told(200)
    scene.trace.told(200, "resident_lost")
    scene.trace.told(500, "internal_error")
    told = scene.trace.record().told
    assert told is not None
    assert (told.status, told.code) == (200, "resident_lost")


def test_a_detector_that_abstained_says_why() -> None:
    scene = Scene()
    scene.trace.boarded(ON_B, None)
    scene.trace.examined(ON_B, Finding(Detector.LIP_SYNC, Abstained("under 4 s"), 0.0))
    (examined,) = scene.trace.record().legs[0].examined
    assert (examined.judgement, examined.why) == (Judgement.ABSTAINED, "under 4 s")


def test_content_is_bounded_and_of_the_last_leg() -> None:
    scene = Scene()
    long = "x" * MAX_CONTENT_CHARS
    scene.trace.said([("system", ["be brief"]), ("user", [long, "never reached"])])
    scene.trace.boarded(ON_A, None)
    scene.trace.answered("half an ans")
    scene.trace.boarded(ON_B, None)
    scene.trace.answered("an answer")
    scene.trace.finished(an_end())
    content = scene.trace.content()
    assert content is not None
    turns = json.loads(content.input_messages)
    assert [turn["role"] for turn in turns] == ["system", "user"]
    said = "".join(p["content"] for turn in turns for p in turn["parts"])
    assert len(said) == MAX_CONTENT_CHARS
    assert json.loads(content.output_messages) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "an answer"}],
            "finish_reason": "stop",
        }
    ]
    scene.trace.answered(long)
    bounded = scene.trace.content()
    assert bounded is not None
    assert len(bounded.output_messages) < MAX_CONTENT_CHARS + 200


def test_content_is_not_kept_unless_it_is_captured() -> None:
    trace = Requests(Kept()).open({})
    trace.said([("user", ["a secret"])])
    trace.answered("another")
    assert trace.content() is None
    assert "secret" not in repr(vars(trace))


def test_an_unknown_request_is_told_how_far_back_they_go() -> None:
    scene = Scene()
    assert message_of(scene.requests, "nope").startswith("no request 'nope' is known here; none")
    ended(scene, Outcome.OK)
    said = message_of(scene.requests, "nope")
    assert "remembers 1 that were served, the oldest of 1970-01-01 00:16:40 UTC" in said
    assert "since this gateway started at 1970-01-01 00:16:40 UTC" in said


def message_of(requests: Requests, request_id: str) -> str:
    try:
        requests.find(request_id)
    except UnknownRequest as err:
        return str(err)
    raise AssertionError("it was found")


def test_a_request_under_way_is_found_as_it_is_and_by_the_ids_of_its_answer() -> None:
    scene = Scene()
    scene.trace.boarded(ON_B, None)
    for name in ("", "chatcmpl-", "audio_"):
        record = scene.requests.find(name + scene.trace.request_id)
        assert (record.outcome, record.legs[0].resident) == (None, "b")
        assert record.trace is not None
        assert record.trace.keep is None  # not decided yet
