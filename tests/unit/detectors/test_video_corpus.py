"""A corpus of hard clips, whole and damaged, through the gateway's decoding: the bars hold."""

import pytest

from bench.detectors_video import RECALL, tally

pytestmark = pytest.mark.slow


def test_no_whole_clip_is_wronged_and_what_can_be_seen_is_found():
    for codec, one in tally(range(100, 103)).items():
        assert one.clean >= 54
        assert one.wronged.total() == 0, (codec, one.wronged)
        assert one.visible >= 54
        assert one.found / one.visible >= RECALL[codec], (codec, dict(one.by_fault))
