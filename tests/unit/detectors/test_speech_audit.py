"""Speech that left: whole, cut off, added to, or never there."""

import numpy as np
import pytest

from monitors.contract import FaultFound
from monitors.detectors import speech
from monitors.detectors.finding import Abstained, Failed, Verdict
from monitors.detectors.speaking_time import VoiceModel
from monitors.detectors.speech import SpeechAudit
from monitors.labels import Detector, Fault, Grade, Origin
from tests.support import media

HZ = 24_000
FRAME = 480
FADES = VoiceModel(end_db=-30.0)


def verdict_on(
    pcm: np.ndarray,
    *,
    reason: str | None = "stop",
    text: str = "hello",
    lost: int = 0,
    voice: VoiceModel | None = None,
    made: int | None = None,
) -> Verdict:
    """Sends the sound in packets of one codec frame, `lost` samples short at the end."""
    audit = SpeechAudit(FRAME, HZ, voice)
    data = media.int16(pcm)
    for start in range(0, len(data), 2 * FRAME):
        packet = data[start : start + 2 * FRAME]
        audit.feed(1, packet.ljust(2 * FRAME, b"\0")[: 2 * FRAME - 2 * lost])
        lost = 0
    return audit.close(reason, text, made)


def faults(verdict: Verdict) -> tuple[FaultFound, ...]:
    return () if isinstance(verdict, Abstained) else verdict


def rules(verdict: Verdict, grade: Grade) -> set[str]:
    return {fault.rule for fault in faults(verdict) if fault.grade is grade}


@pytest.mark.parametrize(("reason", "rule"), [(None, "no_final_event"), ("length", "length")])
def test_a_stream_that_did_not_end_by_itself_is_truncated(reason: str | None, rule: str) -> None:
    (fault,) = faults(verdict_on(media.noise(1.0, HZ), reason=reason))
    assert (fault.rule, fault.grade) == (rule, Grade.HARD)
    assert (fault.fault, fault.origin) == (Fault.SPEECH_TRUNCATED, Origin.OUTPUT)
    assert fault.detector is Detector.SPEECH


def test_one_lost_sample_is_counted_and_placed() -> None:
    (fault,) = faults(verdict_on(media.noise(1.0, HZ), lost=1))
    assert fault.rule == "samples_lost"
    assert (fault.value, fault.limit, fault.unit) == (23_999.0, 24_000.0, "samples")
    assert fault.at_ms == pytest.approx(1000.0, abs=0.1)


def test_frames_that_the_engine_made_and_nobody_got_are_lost() -> None:
    assert rules(verdict_on(media.noise(1.0, HZ), made=54), Grade.HARD) == {"samples_lost"}


def test_samples_that_no_frame_owes_were_added() -> None:
    (fault,) = faults(verdict_on(media.noise(1.0, HZ), made=46))
    assert (fault.rule, fault.grade) == ("samples_added", Grade.HARD)


def test_no_samples_for_a_text_is_empty_speech() -> None:
    assert rules(verdict_on(np.zeros(0, "f4")), Grade.HARD) == {"empty"}


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!"])
def test_nothing_to_say_may_be_silent(text: str) -> None:
    assert verdict_on(np.zeros(0, "f4"), text=text) == ()


def test_frames_without_samples_are_lost_and_empty() -> None:
    audit = SpeechAudit(FRAME, HZ)
    audit.feed(3, b"")
    assert rules(audit.close("stop", "hello"), Grade.HARD) == {"samples_lost", "empty"}


def test_silence_of_an_unknown_voice_only_shows() -> None:
    verdict = verdict_on(np.zeros(HZ, "f4"))
    assert rules(verdict, Grade.HARD) == set()
    assert rules(verdict, Grade.SOFT) == {"silent"}


def test_an_unknown_voice_whose_accounts_agree_is_not_called_clean() -> None:
    verdict = verdict_on(media.noise(2.0, HZ))
    assert isinstance(verdict, Abstained)
    assert verdict.reason == "it is not known how this voice speaks"


def test_a_run_of_zeros_inside_speech_only_shows() -> None:
    noise = media.noise(2.0, HZ)
    noise[HZ : HZ + HZ // 20] = 0
    verdict = verdict_on(noise)
    assert rules(verdict, Grade.HARD) == set()
    assert "zero_run" in rules(verdict, Grade.SOFT)


def test_a_long_pause_and_a_silent_tail_only_show() -> None:
    quiet = media.noise(1.5, HZ) * 1e-3
    speech = media.noise(0.5, HZ)
    verdict = verdict_on(np.concatenate((speech, quiet, speech, quiet)))
    assert rules(verdict, Grade.HARD) == set()
    assert {"gap", "silent_tail"} <= rules(verdict, Grade.SOFT)
    (gap,) = [fault for fault in faults(verdict) if fault.rule == "gap"]
    assert gap.at_ms == pytest.approx(500.0, abs=20.0)
    assert gap.value == pytest.approx(1.5, abs=0.05)


def test_a_loud_end_is_a_cut_only_for_a_voice_that_fades() -> None:
    tone = media.tone(1.0, rate=HZ)
    assert rules(verdict_on(tone), Grade.HARD) == set()
    assert rules(verdict_on(tone, voice=FADES), Grade.HARD) == {"hard_end"}
    assert rules(verdict_on(tone, voice=FADES, text="..."), Grade.HARD) == set()


def test_a_missing_tail_is_a_cut_only_for_a_voice_that_leaves_one() -> None:
    pause = np.concatenate((media.tone(1.0, rate=HZ), np.zeros(FRAME, "f4")))
    assert rules(verdict_on(pause, voice=FADES), Grade.HARD) == set()
    leaves_one = VoiceModel(end_db=-30.0, tail_s=0.1)
    assert rules(verdict_on(pause, voice=leaves_one), Grade.HARD) == {"no_tail"}


def test_a_packet_that_ends_inside_a_sample_is_a_fault_of_its_own() -> None:
    audit = SpeechAudit(FRAME, HZ)
    data = media.int16(media.noise(1.0, HZ))
    audit.feed(25, data[: 50 * FRAME] + b"\1")
    audit.feed(25, data[50 * FRAME :])
    (fault,) = faults(audit.close("stop", "hello"))
    assert (fault.rule, fault.grade, fault.value) == ("half_sample", Grade.HARD, 1.0)


def test_a_text_of_a_very_long_number_can_be_judged() -> None:
    verdict = verdict_on(media.noise(1.0, HZ), lost=1, text="9" * 5000)
    assert "samples_lost" in rules(verdict, Grade.HARD)


def test_what_is_exact_stands_though_the_sound_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, broken_detectors: list[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(speech, "measure", broken)
    (fault,) = faults(verdict_on(media.noise(1.0, HZ), lost=1))
    assert fault.rule == "samples_lost"
    assert isinstance(verdict_on(media.noise(1.0, HZ)), Failed)
    assert len(broken_detectors) == 2
