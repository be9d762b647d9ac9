"""One upload of many damaged clips: all of it is judged, and little of it fills the evidence."""

from collections import Counter

from monitors.contract import FaultFound
from monitors.labels import Detector
from tests.support import media
from tests.unit.runtime.test_turns import built, video
from tests.unit.runtime.test_watch import Scene

CLIPS = 8
SOUND = media.without_packets(media.clip(2.0, audio_offset_ms=400.0), "audio", range(20, 40))
BROKEN = media.with_flipped_bits(SOUND, [3, 9, 15])


async def test_an_upload_of_eight_damaged_clips_costs_no_more_entries_than_one_clip() -> None:
    files = {f"{i}.mp4": BROKEN for i in range(CLIPS)}
    prompt = built(*(video(f"attachment:{name}") for name in files), files=files)
    each = Counter(fault.rule for finding in prompt.findings for fault in finding.faults)
    assert sum(each.values()) >= 5 * CLIPS, "there is much to be said"
    scene = Scene()
    scene.watch.judged(*prompt.findings)
    noted = await scene.said(FaultFound)
    assert len(noted) == len({(one.detector, one.rule, one.grade) for one in noted})
    assert len(noted) <= sum(each.values()) // CLIPS
    assert all(one.detail.startswith(f"{CLIPS} times; first: ") for one in noted)
    for detector in (Detector.TIMELINE, Detector.BITSTREAM, Detector.LIP_SYNC):
        judged = sum(
            scene.counted("redline_detector_judgements_total", detector, judgement) or 0.0
            for judgement in ("clean", "soft", "hard", "abstained")
        )
        assert judged == CLIPS, "every clip is counted"
    await scene.verdicts.stop()
