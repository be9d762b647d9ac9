"""One request watched: milestones, lines crossed in silence, faults, and one ending."""

from typing import Any

import numpy as np
import pytest

from monitors.contract import (
    FaultFound,
    Level,
    LineCrossed,
    MilestoneReached,
    RequestFinished,
)
from monitors.detectors.finding import Finding
from monitors.detectors.model_clock import ClockError
from monitors.detectors.speaking_time import VoiceModel
from monitors.detectors.speech import SpeechAudit
from monitors.labels import Detector, Fault, Grade, Milestone, Modality, Origin, Outcome
from monitors.redlines import RedLines
from runtime.book import Book, Stamp
from runtime.residents.port import AudioDelta, Finished, TextDelta, VideoPrefilled
from runtime.verdicts import Verdicts
from runtime.watch import Watch
from tests.support.exposition import families

LINES = RedLines()
TEXT = TextDelta(request_id="r", text="hello ", tokens=1)
TOKEN, AUDIO, VIDEO = Milestone


def tone(frames: int) -> AudioDelta:
    """A tone that fades out, as an utterance does."""
    at = np.arange(frames * 480) / 24_000
    pcm = 8_000 * np.sin(2 * np.pi * 440 * at) * np.linspace(1.0, 0.0, len(at))
    return AudioDelta(request_id="r", pcm=pcm.astype("<i2").tobytes(), frames=frames)


def cut(packet: AudioDelta, frames: int) -> AudioDelta:
    """Only its first frames."""
    return AudioDelta(request_id="r", pcm=packet.pcm[: frames * 960], frames=frames)


def an_end(**more: Any) -> Finished:
    given = {
        "request_id": "r", "text_reason": "stop", "speech_reason": None, "prompt_tokens": 5,
        "cached_tokens": 3, "completion_tokens": 2, "codec_frames": 0, "samples": 0,
        "av_offset_ms": None, "residency": (),
    }  # fmt: skip
    return Finished(**{**given, **more})


class Scene:
    """A watch over a request that came in at 10.0, with everything it wrote."""

    def __init__(
        self,
        *expects: Milestone,
        operator: bool = False,
        voice: VoiceModel | None = None,
        streamed: bool = True,
    ) -> None:
        self.now = 10.0
        self.verdicts = Verdicts()
        self.book = Book(LINES, "inc", clock=lambda: self.now, wall=lambda: 0.0)
        stamp = Stamp("a", "v2", "s", "r", 1, 1, Level(), operator)
        self.watch = Watch(
            self.book,
            stamp,
            since=10.0,
            expects=expects or (TOKEN,),
            lines=LINES.latency,
            speech=SpeechAudit(480, 24_000, voice),
            streamed=streamed,
            verdicts=self.verdicts,
            clock=lambda: self.now,
        )

    def at(self, seconds: float) -> Watch:
        self.now = 10.0 + seconds
        return self.watch

    def counted(self, metric: str, *labels: str) -> float | None:
        """A counter's value; None where it has no such series yet."""
        for family in families(self.book.exposition).values():
            for sample in family.samples:
                if sample.name == metric and set(labels) == set(sample.labels.values()):
                    return sample.value
        return None

    async def said(self, kind: type[Any]) -> list[Any]:
        await self.verdicts.settled("a")
        batch = await self.book.evidence.after("inc", 0)
        return [entry.body for entry in batch.entries if isinstance(entry.body, kind)]


async def test_a_first_token_in_time_is_a_milestone_and_crosses_nothing() -> None:
    scene = Scene()
    scene.at(0.1).sent(TEXT)
    scene.at(0.5).sent(TEXT)
    scene.watch.tick()
    (reached,) = await scene.said(MilestoneReached)
    assert (reached.milestone, round(reached.seconds, 6)) == (TOKEN, 0.1)
    assert await scene.said(LineCrossed) == []


async def test_a_request_in_silence_crosses_each_line_once_when_it_passes_it() -> None:
    scene = Scene(TOKEN, AUDIO)
    scene.at(0.249).tick()
    assert await scene.said(LineCrossed) == []
    scene.at(0.251).tick()
    scene.at(0.3).tick()
    crossed = await scene.said(LineCrossed)
    assert [(c.milestone, c.line_s) for c in crossed] == [(TOKEN, 0.25), (AUDIO, 0.25)]
    scene.at(0.401).tick()
    scene.at(0.5).sent(TEXT)
    crossed = await scene.said(LineCrossed)
    assert [(c.milestone, c.line_s) for c in crossed[2:]] == [(TOKEN, 0.4), (AUDIO, 0.4)]
    rows = {row.milestone: row for row in scene.book.latency.rows()}
    assert (rows[TOKEN].over, rows[TOKEN].count) == (1, 1)
    assert (rows[AUDIO].over, rows[AUDIO].count) == (1, 0)


async def test_a_late_milestone_crosses_its_lines_even_if_no_timer_ran() -> None:
    scene = Scene()
    scene.at(0.45).sent(TEXT)
    assert [c.line_s for c in await scene.said(LineCrossed)] == [0.25, 0.4]


async def test_only_milestones_that_are_due_are_counted() -> None:
    scene = Scene(TOKEN)
    scene.at(0.1).sent(tone(2))
    scene.at(0.1).prefilled(VideoPrefilled(request_id="r", at=10.1))
    assert await scene.said(MilestoneReached) == []


async def test_the_first_video_frame_is_timed_by_the_engine() -> None:
    scene = Scene(VIDEO)
    scene.at(0.3).prefilled(VideoPrefilled(request_id="r", at=10.2, mean_abs_error=0.1))
    (reached,) = await scene.said(MilestoneReached)
    assert (reached.milestone, round(reached.seconds, 6)) == (VIDEO, 0.2)
    assert await scene.said(FaultFound) == []


async def test_a_request_ends_once() -> None:
    scene = Scene()
    scene.at(0.1).sent(TEXT)
    scene.watch.finish(Outcome.OK, an_end())
    scene.watch.finish(Outcome.CANCELLED)
    scene.at(9.0).tick()
    (ending,) = await scene.said(RequestFinished)
    assert ending == RequestFinished(
        outcome=Outcome.OK, faulted=False, cached_tokens=3, prompt_tokens=5
    )
    assert await scene.said(LineCrossed) == []


@pytest.mark.parametrize(
    ("outcome", "faulted"),
    [(Outcome.FAILED, True), (Outcome.LOST, True), (Outcome.CANCELLED, False)],
)
async def test_an_ending_counts_against_the_resident_unless_the_client_left(
    outcome: Outcome, faulted: bool
) -> None:
    scene = Scene()
    scene.watch.finish(outcome)
    (ending,) = await scene.said(RequestFinished)
    assert ending.faulted is faulted
    assert scene.book.faults.rows()[0].faulted == int(faulted)


async def test_a_request_refused_by_the_engine_is_shown_and_not_judged() -> None:
    scene = Scene()
    scene.watch.finish(Outcome.REFUSED)
    (ending,) = await scene.said(RequestFinished)
    assert not ending.faulted
    assert scene.book.faults.rows() == ()


async def test_a_fault_of_the_input_never_makes_a_request_faulted() -> None:
    scene = Scene()
    broken = FaultFound(
        fault=Fault.VIDEO_CORRUPT,
        grade=Grade.HARD,
        origin=Origin.INPUT,
        detector=Detector.BITSTREAM,
        rule="hole",
        detail="",
    )
    scene.watch.judged(Finding(Detector.BITSTREAM, (broken,), 0.0))
    scene.watch.finish(Outcome.OK, an_end())
    assert await scene.said(FaultFound) == [broken]
    assert not (await scene.said(RequestFinished))[0].faulted


async def test_pixels_that_changed_on_the_way_are_a_fault_of_the_pipeline() -> None:
    scene = Scene(VIDEO)
    scene.watch.prefilled(VideoPrefilled(request_id="r", at=10.2, mean_abs_error=40.0))
    scene.watch.finish(Outcome.OK, an_end())
    (found,) = await scene.said(FaultFound)
    assert (found.fault, found.origin) == (Fault.VIDEO_CORRUPT, Origin.PIPELINE)
    assert (await scene.said(RequestFinished))[0].faulted


async def test_nothing_is_found_of_a_request_behind_its_ending() -> None:
    scene = Scene(VIDEO)
    scene.watch.finish(Outcome.LOST)
    scene.watch.prefilled(VideoPrefilled(request_id="r", at=10.2, mean_abs_error=40.0))
    assert await scene.said(FaultFound) == []


async def test_sound_out_of_step_with_the_picture_is_a_fault() -> None:
    scene = Scene()
    scene.watch.finish(Outcome.OK, an_end(av_offset_ms=400.0))
    assert [f.fault for f in await scene.said(FaultFound)] == [Fault.LIP_DESYNC]


async def test_a_token_far_from_its_time_is_a_fault_though_the_clip_is_in_step_on_the_whole() -> (
    None
):
    scene = Scene()
    worst = ClockError(unit_ms=77.0, error_ms=-300.0, at_ms=8000.0, modality=Modality.AUDIO)
    scene.watch.finish(Outcome.OK, an_end(av_offset_ms=0.0, clock_error=worst))
    (found,) = await scene.said(FaultFound)
    assert (found.rule, found.at_ms, found.origin) == ("position_error", 8000.0, Origin.PIPELINE)
    assert (await scene.said(RequestFinished))[0].faulted


async def test_whole_speech_is_no_fault() -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(TEXT)
    scene.watch.sent(tone(10))
    scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=10))
    assert [f for f in await scene.said(FaultFound) if f.grade is Grade.HARD] == []


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        ({"speech_reason": "length", "codec_frames": 10}, "length"),
        ({"speech_reason": "stop", "codec_frames": 14}, "samples_lost"),
    ],
)
async def test_speech_that_was_cut_short_is_a_fault(end: dict[str, Any], rule: str) -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(tone(10))
    scene.watch.finish(Outcome.OK, an_end(**end))
    assert rule in [f.rule for f in await scene.said(FaultFound)]
    assert (await scene.said(RequestFinished))[0].faulted


async def test_speech_that_a_lost_engine_left_unfinished_is_a_fault() -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(tone(10))
    scene.watch.finish(Outcome.LOST)
    assert "no_final_event" in [f.rule for f in await scene.said(FaultFound)]


async def test_the_verdict_on_speech_comes_behind_the_ending_of_the_request() -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(tone(10))
    scene.watch.finish(Outcome.OK, an_end(speech_reason="length", codec_frames=10))
    scene.watch.finish(Outcome.CANCELLED)
    assert scene.watch.over
    assert scene.book.faults.rows() == ()
    await scene.verdicts.settled("a")
    batch = await scene.book.evidence.after("inc", 0)
    told = [entry.body for entry in batch.entries]
    assert [type(body) for body in told[-2:]] == [FaultFound, RequestFinished]
    (ending,) = [body for body in told if isinstance(body, RequestFinished)]
    assert (ending.outcome, ending.faulted) == (Outcome.OK, True)


async def test_a_cut_is_heard_though_every_account_agrees() -> None:
    """Sound that stops at its loudest, of a voice that fades."""
    for voice, found in ((None, []), (VoiceModel(end_db=-30.0), ["hard_end"])):
        scene = Scene(AUDIO, voice=voice)
        scene.at(0.1).sent(TEXT)
        scene.watch.sent(cut(tone(10), 5))
        scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=5))
        hard = [f.rule for f in await scene.said(FaultFound) if f.grade is Grade.HARD]
        assert hard == found


async def test_speech_of_an_unknown_voice_is_counted_as_not_judged() -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(TEXT)
    scene.watch.sent(tone(10))
    scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=10))
    assert await scene.said(FaultFound) == []
    assert scene.counted("redline_detector_judgements_total", "speech", "abstained") == 1.0
    assert scene.counted("redline_detector_judgements_total", "speech", "clean") == 0.0


async def test_a_stall_is_told_by_when_packets_came_and_not_by_when_the_client_took_them() -> None:
    scene = Scene(AUDIO)
    for number in range(4):
        scene.at(0.1 + 0.08 * number).came(tone(4))
        scene.at(5.0 * number).sent(tone(4))
    scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=16))
    assert [f for f in await scene.said(FaultFound) if f.detector is Detector.PLAYOUT] == []
    late = Scene(AUDIO)
    for number in range(4):
        late.at(0.5 * number).came(tone(4))
        late.watch.sent(tone(4))
    late.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=16))
    (stall,) = [f for f in await late.said(FaultFound) if f.detector is Detector.PLAYOUT]
    assert (stall.rule, stall.grade) == ("stall", Grade.SOFT)
    assert not (await late.said(RequestFinished))[0].faulted


async def test_nobody_listens_to_an_answer_that_is_sent_in_one_piece() -> None:
    scene = Scene(AUDIO, streamed=False)
    for number in range(4):
        scene.at(3.0 * number).came(tone(4))
        scene.watch.sent(tone(4))
    scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=16))
    assert [f for f in await scene.said(FaultFound) if f.detector is Detector.PLAYOUT] == []
    assert scene.counted("redline_detector_judgements_total", "playout", "clean") == 0.0
    assert scene.counted("redline_speech_seconds_total", "v2") == pytest.approx(0.32)
    assert scene.counted("redline_playout_underrun_seconds_total", "v2") == 0.0


async def test_speech_that_the_client_gave_up_is_not_judged() -> None:
    scene = Scene(AUDIO)
    scene.at(0.1).sent(tone(10))
    scene.watch.finish(Outcome.CANCELLED)
    assert len(await scene.said(RequestFinished)) == 1
    assert await scene.said(FaultFound) == []


@pytest.mark.parametrize("broken", ["residency", "judged"])
async def test_a_request_has_its_ending_whatever_cannot_be_written_before_it(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("it cannot be written")

    scene = Scene()
    monkeypatch.setattr(scene.book, broken, fail)
    with pytest.raises(RuntimeError, match="cannot be written"):
        scene.watch.finish(Outcome.OK, an_end(av_offset_ms=0.0))
    (ending,) = await scene.said(RequestFinished)
    assert ending.outcome is Outcome.OK


async def test_operator_traffic_is_marked_and_stays_out_of_the_tables() -> None:
    scene = Scene(operator=True)
    scene.at(0.5).sent(TEXT)
    scene.watch.finish(Outcome.FAILED)
    batch = await scene.book.evidence.after("inc", 0)
    assert batch.entries
    assert all(entry.operator for entry in batch.entries)
    assert scene.book.latency.rows() == ()
    assert scene.book.faults.rows() == ()


async def test_a_request_that_never_reached_the_resident_has_no_ending() -> None:
    scene = Scene()
    scene.watch.abandon()
    scene.watch.finish(Outcome.CANCELLED)
    assert await scene.said(RequestFinished) == []
