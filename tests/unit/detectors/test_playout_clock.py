"""The silence a listener would hear, from arrival times and sample counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.playout import PlayoutClock


def test_speech_that_arrives_in_time_is_heard_without_a_break():
    clock = PlayoutClock(24_000)
    assert [clock.feed(i * 0.08, 1920) for i in range(10)] == pytest.approx([0.0] * 10, abs=1e-9)
    assert clock.speech_s == pytest.approx(0.8)


def test_a_late_packet_is_heard_as_silence():
    clock = PlayoutClock(24_000)
    clock.feed(5.0, 2400)
    assert clock.feed(5.35, 2400) == pytest.approx(0.25)
    assert clock.underrun_s == pytest.approx(0.25)


def test_what_arrived_early_covers_a_later_pause():
    clock = PlayoutClock(24_000)
    clock.feed(0.0, 24_000)
    assert clock.feed(0.9, 2400) == 0.0


def test_silence_moves_everything_after_it():
    clock = PlayoutClock(1000)
    clock.feed(0.0, 100)
    clock.feed(0.5, 100)
    assert clock.feed(0.65, 100) == pytest.approx(0.05)


def test_a_prebuffer_hides_jitter():
    clock = PlayoutClock(1000, prebuffer_s=0.2)
    clock.feed(0.0, 100)
    assert clock.feed(0.29, 100) == 0.0


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(0, 5000)), min_size=1))
def test_playing_takes_as_long_as_speech_and_silence_together(packets):
    clock, now = PlayoutClock(1000), 0.0
    for pause, samples in packets:
        now += pause
        clock.feed(now, samples)
    first = packets[0][0]
    assert clock.underrun_s >= 0.0
    assert clock.speech_s + clock.underrun_s >= now - first - 1e-9
