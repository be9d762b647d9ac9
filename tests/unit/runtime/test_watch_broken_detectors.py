"""A detector that breaks while a request is watched costs its own verdict, and nothing else."""

from typing import NoReturn

import pytest

from monitors.contract import RequestFinished
from monitors.detectors import model_clock, operations
from monitors.detectors.playout import PlayoutClock
from monitors.detectors.speech import SpeechAudit
from monitors.labels import Detector, Outcome
from runtime.residents.port import VideoPrefilled
from tests.unit.runtime.test_watch import AUDIO, TOKEN, Scene, an_end, tone


def broken(*_: object) -> NoReturn:
    raise ArithmeticError("what the client said")


@pytest.mark.parametrize(
    ("owner", "name", "failed"),
    [
        (SpeechAudit, "feed", Detector.SPEECH),
        (SpeechAudit, "close", Detector.SPEECH),
        (PlayoutClock, "feed", Detector.PLAYOUT),
        (PlayoutClock, "close", Detector.PLAYOUT),
        (model_clock, "faults", Detector.TIMELINE),
        (operations, "arrival_faults", Detector.OPERATIONS),
    ],
)
async def test_a_request_ends_well_whatever_a_detector_raises(
    owner: object,
    name: str,
    failed: Detector,
    monkeypatch: pytest.MonkeyPatch,
    broken_detectors: list[str],
) -> None:
    monkeypatch.setattr(owner, name, broken)
    scene = Scene(TOKEN, AUDIO)
    scene.watch.prefilled(
        VideoPrefilled(request_id="r", at=10.1, mean_abs_error=0.1, max_abs_error=0.2)
    )
    for second in (0.1, 0.2):
        packet = tone(2)
        scene.at(second).came(packet)
        scene.at(second).sent(packet)
    scene.watch.finish(Outcome.OK, an_end(speech_reason="stop", codec_frames=4, av_offset_ms=0.0))
    (ending,) = await scene.said(RequestFinished)
    assert (ending.outcome, ending.faulted) == (Outcome.OK, False)
    assert scene.counted("redline_detector_judgements_total", failed, "failed") == 1
    assert len(broken_detectors) == 1, "told once, not for every packet"
    await scene.verdicts.stop()


async def test_a_detector_that_broke_on_the_first_packet_is_told_of_a_lost_request_too(
    monkeypatch: pytest.MonkeyPatch, broken_detectors: list[str]
) -> None:
    monkeypatch.setattr(SpeechAudit, "feed", broken)
    scene = Scene(TOKEN, AUDIO)
    scene.at(0.1).sent(tone(2))
    scene.watch.finish(Outcome.LOST)
    assert len(await scene.said(RequestFinished)) == 1
    assert scene.counted("redline_detector_judgements_total", Detector.SPEECH, "failed") == 1
    assert len(broken_detectors) == 1
    await scene.verdicts.stop()
