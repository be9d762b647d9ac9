"""Speech that left: whole, cut off, or never there."""

import numpy as np
import pytest

from monitors.contract import FaultFound
from monitors.detectors.speech import SpeechAudit
from monitors.labels import Fault, Grade, Origin
from tests.support import media

HZ = media.SPEECH_HZ
FRAME = 480
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Please turn left at the next light, and then drive straight on for two miles.",
    "No. I have not seen her since Tuesday evening.",
    "Seventeen ships sailed slowly past the harbour wall.",
    "What time does the last train leave?",
)


def audit(
    pcm: np.ndarray,
    *,
    reason: str | None = "stop",
    text: str = "hello",
    lost: int = 0,
    synthetic: bool = False,
) -> tuple[FaultFound, ...]:
    """Sends the sound in packets of one codec frame, `lost` samples short at the end."""
    audit = SpeechAudit(FRAME, HZ, synthetic=synthetic)
    data = media.int16(pcm)
    for start in range(0, len(data), 2 * FRAME):
        packet = data[start : start + 2 * FRAME]
        audit.feed(1, packet.ljust(2 * FRAME, b"\0")[: 2 * FRAME - 2 * lost])
        lost = 0
    return audit.close(reason, text)


def rules(found: tuple[FaultFound, ...], grade: Grade) -> set[str]:
    return {fault.rule for fault in found if fault.grade is grade}


@pytest.mark.parametrize("text", TEXTS)
def test_whole_speech_has_no_hard_fault(text: str):
    found = audit(media.speech(text), text=text, synthetic=True)
    assert rules(found, Grade.HARD) == set()


@pytest.mark.parametrize(("reason", "rule"), [(None, "no_final_event"), ("length", "length")])
def test_a_stream_that_did_not_end_by_itself_is_truncated(reason: str | None, rule: str):
    (fault,) = audit(media.noise(1.0, HZ), reason=reason)
    assert (fault.rule, fault.grade) == (rule, Grade.HARD)
    assert (fault.fault, fault.origin) == (Fault.SPEECH_TRUNCATED, Origin.OUTPUT)


def test_one_lost_sample_is_counted():
    (fault,) = audit(media.noise(1.0, HZ), lost=1)
    assert fault.rule == "samples_lost"
    assert fault.detail.startswith("1 samples lost")


def test_no_samples_for_a_text_is_empty_speech():
    assert rules(audit(np.zeros(0, "f4")), Grade.HARD) == {"empty"}


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!"])
def test_nothing_to_say_may_be_silent(text: str):
    assert audit(np.zeros(0, "f4"), text=text) == ()


def test_frames_without_samples_are_lost_and_empty():
    audit = SpeechAudit(FRAME, HZ)
    audit.feed(3, b"")
    assert rules(audit.close("stop", "hello"), Grade.HARD) == {"samples_lost", "empty"}


def test_silence_only_shows():
    found = audit(np.zeros(HZ, "f4"))
    assert rules(found, Grade.HARD) == set()
    assert rules(found, Grade.SOFT) == {"silent"}


def test_the_noise_of_an_untrained_voice_is_not_called_truncated():
    assert audit(media.noise(2.0, HZ)) == ()


def test_a_run_of_zeros_inside_speech_only_shows():
    noise = media.noise(2.0, HZ)
    noise[HZ : HZ + HZ // 20] = 0
    found = audit(noise)
    assert rules(found, Grade.HARD) == set()
    assert rules(found, Grade.SOFT) == {"zero_run"}


def test_a_long_pause_and_a_silent_tail_only_show():
    quiet = media.noise(1.5, HZ) * 1e-3
    speech = media.noise(0.5, HZ)
    found = audit(np.concatenate((speech, quiet, speech, quiet)))
    assert rules(found, Grade.HARD) == set()
    assert rules(found, Grade.SOFT) == {"gap", "silent_tail"}


@pytest.mark.parametrize("text", TEXTS)
def test_synthetic_speech_cut_in_the_middle_of_a_word_is_truncated(text: str):
    whole = media.speech(text)
    loud = np.flatnonzero(np.abs(whole) > 0.3)
    cut = whole[: FRAME * (int(loud[len(loud) // 2]) // FRAME)]
    assert "hard_end" in rules(audit(cut, text=text, synthetic=True), Grade.HARD)


def test_a_hard_end_is_judged_only_where_the_voice_is_declared_synthetic():
    whole = media.speech()
    cut = whole[: len(whole) // 2 // FRAME * FRAME]
    assert rules(audit(cut), Grade.HARD) == set()
