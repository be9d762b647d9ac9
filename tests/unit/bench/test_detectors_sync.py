"""The bench of clocks and lips: its figures hold on a small run, and say what they are of."""

import pytest

from bench import detectors_sync
from bench.detectors_sync import Tally
from monitors.detectors.finding import Abstained, Finding
from monitors.labels import Detector, Judgement


def test_shares_are_of_what_was_judged() -> None:
    tally = Tally()
    tally.add(Finding(Detector.TIMELINE, (), 0.002), 1.0)
    tally.add(Finding(Detector.TIMELINE, Abstained("too short"), 0.004), 2.0)
    assert (tally.items, tally.count(Judgement.CLEAN, Judgement.ABSTAINED)) == (2, 2)
    assert tally.cpu_s / tally.media_s == pytest.approx(0.002)


@pytest.mark.slow
@pytest.mark.timeout(600)  # a minute, where no others share the machine
def test_every_wrong_clock_is_told_and_no_clean_clip_is_called_hard() -> None:
    figures = {figure.bar: figure for figure in detectors_sync.timeline(quick=True)}
    missed = [f.bar for f in figures.values() if f.holds is False and "bound" not in f.bar]
    assert missed == []
    assert sum("hard recall" in bar for bar in figures) == 15


@pytest.mark.slow
def test_lips_are_told_where_the_clip_is_long_and_never_on_clean_ones() -> None:
    figures = {figure.bar.split(",")[0]: figure for figure in detectors_sync.lips(quick=True)}
    assert figures["lips: hard on clean"].value == 0.0
    assert (figures["lips: hard recall"].value or 0.0) > 0.5, "of the longest"
