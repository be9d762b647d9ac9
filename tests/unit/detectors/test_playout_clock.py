"""The silence a listener would hear, from arrival times and sample counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.contract import FaultFound
from monitors.detectors.finding import Abstained
from monitors.detectors.playout import HANG_S, PREBUFFER_S, PlayoutClock
from monitors.labels import Detector, Grade
from tests.faults import speech
from tests.faults.voices import HZ


def played(arrivals: list[tuple[float, int]]) -> PlayoutClock:
    clock = PlayoutClock(HZ)
    for at, samples in arrivals:
        clock.feed(at, samples)
    return clock


def faults(arrivals: list[tuple[float, int]]) -> tuple[FaultFound, ...]:
    verdict = played(arrivals).close()
    assert not isinstance(verdict, Abstained)
    return verdict


def test_speech_that_arrives_in_time_is_heard_without_a_break():
    clock = PlayoutClock(24_000)
    assert [clock.feed(i * 0.08, 1920) for i in range(10)] == pytest.approx([0.0] * 10, abs=1e-9)
    assert clock.speech_s == pytest.approx(0.8)


def test_a_late_packet_is_heard_as_silence():
    clock = PlayoutClock(24_000, prebuffer_s=0.0)
    clock.feed(5.0, 2400)
    assert clock.feed(5.35, 2400) == pytest.approx(0.25)
    assert clock.underrun_s == pytest.approx(0.25)


def test_what_arrived_early_covers_a_later_pause():
    clock = PlayoutClock(24_000)
    clock.feed(0.0, 24_000)
    assert clock.feed(0.9, 2400) == 0.0


def test_silence_moves_everything_after_it():
    clock = PlayoutClock(1000, prebuffer_s=0.0)
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
    assert clock.speech_s + clock.underrun_s >= now - first - PREBUFFER_S - 1e-9


def test_speech_that_never_came_is_not_judged():
    assert isinstance(PlayoutClock(HZ).close(), Abstained)


@pytest.mark.parametrize("pace", [0.1, 0.5, 1.0])
def test_a_stream_that_keeps_up_has_no_fault(pace: float):
    assert faults(speech.on_time(10.0, pace=pace)) == ()


def test_jitter_inside_the_prebuffer_is_not_heard():
    arrivals = [(at + (0.09 if i % 3 else 0.0), n) for i, (at, n) in enumerate(speech.on_time(5.0))]
    assert faults(arrivals) == ()


@pytest.mark.parametrize(("seconds", "heard"), [(0.05, False), (0.08, True), (1.0, True)])
def test_a_stall_shows_once_it_is_longer_than_a_stop_consonant(seconds: float, heard: bool):
    found = faults(speech.stalled(speech.on_time(5.0), 2.0, seconds))
    assert [fault.rule for fault in found] == (["stall"] if heard else [])
    for fault in found:
        assert (fault.grade, fault.detector) == (Grade.SOFT, Detector.PLAYOUT)
        assert fault.at_ms == pytest.approx(2000.0, abs=1.0)
        assert fault.value == pytest.approx(seconds, abs=0.001)


def test_a_stall_that_sounds_like_the_end_is_hard():
    (fault,) = faults(speech.stalled(speech.on_time(5.0), 2.0, HANG_S + 0.1))
    assert (fault.rule, fault.grade, fault.limit) == ("hang", Grade.HARD, HANG_S)


def test_a_stream_that_is_slow_throughout_is_load_and_stays_soft():
    found = faults(speech.on_time(4.0, packet_s=0.5, pace=9.0))
    assert {fault.grade for fault in found} == {Grade.SOFT}
    assert found[0].value is not None
    assert found[0].value > HANG_S, "or the stalls are too short to tell"
    assert "real-time factor 9.00" in found[0].detail


def test_of_a_few_packets_nobody_can_tell_a_hang_from_a_slow_stream():
    found = faults([(0.0, 960), (HANG_S + 1.0, 1920), (HANG_S + 1.05, 1920)])
    assert [(fault.rule, fault.grade) for fault in found] == [("stall", Grade.SOFT)]


def test_a_stream_that_falls_behind_more_and_more_is_noticed():
    assert "slowing" in {fault.rule for fault in faults(speech.slowing(8.0))}


def test_a_pace_that_is_steady_is_told_as_it_is():
    assert played(speech.on_time(5.0, pace=0.7)).pace() == pytest.approx(0.7)


def test_stalls_are_told_by_where_they_are_heard():
    clock = played(speech.stalled(speech.stalled(speech.on_time(6.0), 4.0, 0.3), 2.0, 0.2))
    assert [stall.at_s for stall in clock.stalls] == pytest.approx([2.0, 4.0])
