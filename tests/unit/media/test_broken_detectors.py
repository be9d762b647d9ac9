"""A detector that breaks while a clip is decoded costs its own verdict, and nothing else."""

from typing import NoReturn

import numpy as np
import pytest

from monitors.detectors import bitstream, lip_sync, operations, pixels, timeline
from monitors.detectors.h264 import H264Reader
from monitors.labels import Detector, Judgement
from runtime.media import decode as decoding
from runtime.media import inspection
from runtime.media.client_digest import ClientDigest, digest_of
from runtime.media.decode import Clip
from runtime.media.glimpses import Glimpses
from tests.support import media
from tests.unit.media.decoding import decoded, video_slices
from tests.unit.runtime.test_turns import built, video

CLIP = media.clip(2.0)
BROKEN: tuple[tuple[object, str, set[Detector]], ...] = (
    (timeline, "judge", {Detector.TIMELINE}),
    (decoding, "_timeline", {Detector.TIMELINE}),
    (lip_sync, "judge", {Detector.LIP_SYNC}),
    (bitstream, "faults", {Detector.BITSTREAM}),
    (inspection, "pts_gaps", {Detector.BITSTREAM}),
    (H264Reader, "__post_init__", {Detector.BITSTREAM}),
    (H264Reader, "feed", {Detector.BITSTREAM}),
    (pixels, "faults", {Detector.PIXELS}),
    (pixels, "look", {Detector.PIXELS}),
    (Glimpses, "feed", {Detector.PIXELS, Detector.LIP_SYNC}),
    (inspection, "planes", {Detector.PIXELS, Detector.OPERATIONS}),
    (operations, "picture_faults", {Detector.OPERATIONS}),
    (operations, "made", {Detector.OPERATIONS}),
    (operations, "signature", {Detector.OPERATIONS}),
)


def broken(*_: object, **__: object) -> NoReturn:
    raise ArithmeticError("what the client said")


def judgements(clip: Clip) -> dict[Detector, Judgement]:
    return {finding.detector: finding.judgement for finding in clip.report.findings}


@pytest.fixture(scope="module")
def whole() -> Clip:
    return decoded(CLIP)


@pytest.mark.parametrize(("owner", "name", "failed"), BROKEN, ids=[name for _, name, _ in BROKEN])
def test_a_clip_is_decoded_whatever_a_detector_raises(
    owner: object,
    name: str,
    failed: set[Detector],
    whole: Clip,
    monkeypatch: pytest.MonkeyPatch,
    broken_detectors: list[str],
) -> None:
    monkeypatch.setattr(owner, name, broken)
    clip = decoded(CLIP)
    assert judgements(clip) == judgements(whole) | dict.fromkeys(failed, Judgement.FAILED)
    assert clip.digest == whole.digest
    for ours, theirs in zip(video_slices(clip), video_slices(whole), strict=True):
        assert np.array_equal(ours.frames, theirs.frames)
    assert 1 <= len(broken_detectors) <= len(failed), "told once, not for every frame"
    assert not [line for line in broken_detectors if "client" in line]


def test_a_request_is_built_though_its_digest_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch, broken_detectors: list[str]
) -> None:
    monkeypatch.setattr(ClientDigest, "faults", broken)
    part = video("attachment:c.mp4")
    part["video_url"]["digest"] = digest_of(CLIP)
    prompt = built(part, files={"c.mp4": CLIP})
    assert prompt.turns
    judged = {finding.detector: finding.judgement for finding in prompt.findings}
    assert judged[Detector.BITSTREAM] is Judgement.FAILED
    assert len(broken_detectors) == 1
