"""Sound that cannot be read is told, by how much of it there is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.detectors.sound_damage import SoundReport, faults
from monitors.labels import Detector, Fault, Grade, Origin
from tests.support import media
from tests.unit.media.decoding import decoded

FILES = {
    "mp3": ("mp3", "libmp3lame"),
    "aac": ("adts", "aac"),
    "opus": ("ogg", "libopus"),
    "flac": ("flac", "flac"),
}


def sound(name: str) -> bytes:
    return media.encoded_audio(media.tone(3.0, rate=48_000), 48_000, *FILES[name])


def found(data: bytes) -> list[FaultFound]:
    return [f for f in decoded(data, "audio").report.faults if f.detector is Detector.BITSTREAM]


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_clean(name: str):
    assert found(sound(name)) == []


def test_flipped_bytes_are_a_hard_input_fault_with_place_and_share():
    broken = bytearray(sound("mp3"))
    for at in np.random.default_rng(0).integers(2000, len(broken), 400):
        broken[at] ^= 0xFF
    (fault,) = found(bytes(broken))
    assert (fault.rule, fault.grade, fault.origin) == (
        "sound_unreadable", Grade.HARD, Origin.INPUT,
    )  # fmt: skip
    assert fault.fault is Fault.SPEECH_TRUNCATED
    assert fault.value is not None
    assert fault.value > 5.0
    assert fault.at_ms is not None
    assert 0.0 <= fault.at_ms < 3000.0


def test_a_tag_behind_the_sound_is_no_hard_fault():
    assert all(f.grade is Grade.SOFT for f in found(sound("mp3") + b"TAG" + b"\xff" * 125))


def test_the_sound_of_a_video_is_judged_too():
    clip = media.clip(2.0, width=64, height=48)
    broken = media.remux(
        clip, "mp4", lambda kind, i, raw: b"\xff" * 40 if kind == "audio" and i in {20, 40} else raw
    )
    (fault,) = [f for f in decoded(broken).report.faults if f.rule == "sound_unreadable"]
    assert fault.grade is Grade.SOFT
    assert fault.at_ms == pytest.approx(20 * 64 / 3, abs=25.0)


@given(st.integers(0, 500), st.lists(st.none() | st.floats(0.0, 1e6), max_size=500))
def test_the_grade_goes_by_the_share(packets: int, lost: list[float | None]):
    report = SoundReport(packets, tuple(lost))
    grades = [fault.grade for fault in faults(report)]
    hard = len(lost) >= 3 and len(lost) * 50 >= max(packets, len(lost))
    assert grades == ([] if not lost else [Grade.HARD if hard else Grade.SOFT])
