"""Lips and voice of real clips, from their bytes to a finding."""

import pytest

from monitors.detectors.finding import Abstained, Finding
from monitors.labels import Detector, Judgement
from tests.faults import meters, talking_head
from tests.faults.talking_head import Scene
from tests.support import media
from tests.unit.media.decoding import decoded

SCENE = Scene(6, 8.0)


def lips(data: bytes) -> Finding:
    (finding,) = (f for f in decoded(data).report.findings if f.detector is Detector.LIP_SYNC)
    return finding


@pytest.mark.parametrize("container", ["mp4", "webm"])
@pytest.mark.parametrize("offset_ms", [-300.0, 0.0, 400.0])
def test_a_talkers_voice_is_where_it_is_put(container: str, offset_ms: float):
    finding = lips(talking_head.talking(SCENE, offset_ms, container))
    assert finding.judgement is (Judgement.HARD if offset_ms else Judgement.CLEAN)
    for fault in finding.faults:
        assert fault.value == pytest.approx(offset_ms, abs=30.0)


def test_time_stamps_that_are_late_as_well_are_taken_for_what_they_are():
    film, voice = talking_head.filmed(SCENE), talking_head.voice(6, 8.0, "en")
    data = talking_head.with_sound(film, talking_head.late(voice, 200.0))
    assert lips(data).judgement is Judgement.SOFT, "200 ms are within an error of the limit"


def test_another_ones_voice_is_left_alone():
    film = talking_head.filmed(SCENE)
    finding = lips(talking_head.with_sound(film, talking_head.voice(99, 8.0, "zh")))
    assert finding.judgement is Judgement.ABSTAINED


@pytest.mark.parametrize("screen", list(meters.screens(8)), ids=str)
def test_a_dark_meter_that_lags_is_no_mouth(screen: meters.Screen):
    film = talking_head.with_sound(screen.film(), screen.sound())
    assert lips(film).judgement in {Judgement.ABSTAINED, Judgement.CLEAN}


@pytest.mark.parametrize(
    ("clip", "words"),
    [
        ({"seconds": 2.0, "sound": "speech"}, "shorter than"),
        ({"seconds": 5.0, "sound": None}, "not both there"),
        ({"seconds": 5.0, "sound": "tone"}, "no voice"),
        ({"seconds": 5.0, "sound": "speech", "fps": 5.0}, "too few"),
    ],
)
def test_what_cannot_be_told_says_why(clip: dict[str, object], words: str):
    verdict = lips(media.clip(width=64, height=48, **clip)).verdict
    assert isinstance(verdict, Abstained)
    assert words in verdict.reason


def test_four_seconds_are_four_seconds():
    assert "shorter" not in str(lips(media.clip(4.0, width=64, height=48, sound="speech")).verdict)


def test_a_sound_alone_has_no_lips():
    findings = decoded(media.spoken_wav(), "audio").report.findings
    assert Detector.LIP_SYNC not in {finding.detector for finding in findings}
