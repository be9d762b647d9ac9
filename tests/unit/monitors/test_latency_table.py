"""Table 2 is exact: nearest-rank quantiles of the ring, and crossings counted when they happen."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.labels import Milestone
from monitors.latency_table import MEASURED_FROM, LatencyTable
from monitors.recent import Recent
from monitors.redlines import RedLines

TOKEN, AUDIO = Milestone.FIRST_TOKEN, Milestone.FIRST_AUDIO_PACKET
SECONDS = st.lists(st.floats(0.0, 30.0), min_size=1, max_size=120)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def table(most: int = 2_000) -> tuple[LatencyTable, Clock]:
    clock = Clock()
    return LatencyTable(RedLines(), most, clock=clock), clock


@settings(max_examples=150, deadline=None)
@given(SECONDS)
def test_a_quantile_is_numpys_inverted_cdf(seconds: list[float]) -> None:
    latencies, clock = table()
    for value in seconds:
        latencies.observe("v1", TOKEN, value)
    (row,) = latencies.rows(clock.now)
    expected = [inverted_cdf(seconds, q) for q in (0.5, 0.95, 0.99)]
    assert [row.p50_s, row.p95_s, row.p99_s] == expected


def inverted_cdf(seconds: list[float], q: float) -> float | None:
    return float(np.quantile(seconds, q, method="inverted_cdf")) if seconds else None


@settings(max_examples=60, deadline=None)
@given(SECONDS, st.integers(1, 50))
def test_of_more_values_than_there_is_room_for_rows_hold_the_newest(
    seconds: list[float], most: int
) -> None:
    latencies, _ = table(most)
    for value in seconds:
        latencies.observe("v1", TOKEN, value)
    (row,) = latencies.rows(100.0)
    expected = np.quantile(seconds[-most:], [0.5, 0.95, 0.99], method="inverted_cdf")
    assert [row.p50_s, row.p95_s, row.p99_s] == expected.tolist()
    assert (row.count, row.over) == (len(seconds), 0)


def test_a_hung_request_shows_as_over_while_its_quantiles_stay_unknown() -> None:
    latencies, _ = table()
    latencies.overdue("v1", AUDIO)
    (row,) = latencies.rows(100.0)
    assert (row.count, row.over) == (0, 1)
    assert row.p50_s is row.p95_s is row.p99_s is None


def test_rows_stand_in_order_of_version_and_milestone() -> None:
    latencies, _ = table()
    for version, milestone in [("v2", AUDIO), ("v1", AUDIO), ("v2", TOKEN), ("v1", TOKEN)]:
        latencies.observe(version, milestone, 0.1)
    keys = [(row.version, row.milestone) for row in latencies.rows(100.0)]
    assert keys == [("v1", TOKEN), ("v1", AUDIO), ("v2", TOKEN), ("v2", AUDIO)]


def test_recent_p99_is_of_the_window_and_of_the_worst_milestone() -> None:
    latencies, clock = table()
    latencies.observe("v1", TOKEN, 9.0)
    clock.now += 31.0
    latencies.observe("v1", TOKEN, 0.1)
    latencies.observe("v1", AUDIO, 0.2)
    latencies.observe("v2", AUDIO, 5.0)
    assert latencies.recent_p99("v1", clock.now) == 0.2


def test_without_a_recent_request_the_p99_is_unknown() -> None:
    latencies, clock = table()
    assert latencies.recent_p99("v1", clock.now) is None
    latencies.observe("v1", TOKEN, 0.1)
    assert latencies.recent_p99("v1", clock.now + 31.0) is None


@pytest.mark.parametrize("crossing_first", [True, False])
def test_a_late_output_is_counted_once_in_the_recent_p99(crossing_first: bool) -> None:
    latencies, clock = table()
    for _ in range(99):
        latencies.observe("v1", TOKEN, 0.1)
    if crossing_first:
        latencies.overdue("v1", TOKEN)
        assert latencies.recent_p99("v1", clock.now) == 0.1  # 1 of 100: at the line
    latencies.observe("v1", TOKEN, 0.7)
    if not crossing_first:
        latencies.overdue("v1", TOKEN)
    assert latencies.recent_p99("v1", clock.now) == 0.1
    latencies.overdue("v1", TOKEN)  # a second one, still without its output
    assert latencies.recent_p99("v1", clock.now) == 0.7


def test_a_version_whose_requests_all_hang_is_infinitely_late() -> None:
    latencies, clock = table()
    latencies.overdue("v1", AUDIO)
    assert latencies.recent_p99("v1", clock.now) == math.inf


@pytest.mark.parametrize("seconds", [-0.1, math.nan, math.inf])
def test_impossible_latencies_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError):
        table()[0].observe("v1", TOKEN, seconds)


def test_a_row_is_of_the_window_and_counts_on_for_ever() -> None:
    latencies, clock = table()
    latencies.observe("v1", TOKEN, 0.1)
    latencies.overdue("v1", TOKEN)
    clock.now += 31.0
    (row,) = latencies.rows(clock.now)
    assert (row.count, row.over, row.requests) == (1, 1, 0)
    assert row.p50_s is row.over_share is row.slow_share is None


def test_shares_count_a_request_once_answered_late_or_hung() -> None:
    latencies, clock = table()
    for seconds in (0.1, 0.3, 0.7):
        latencies.observe("v1", TOKEN, seconds)
    latencies.overdue("v1", TOKEN)  # the one that took 0.7 s
    latencies.overdue("v1", TOKEN)  # and one that hangs
    (row,) = latencies.rows(clock.now)
    assert (row.requests, row.over_share, row.slow_share) == (4, 0.5, 0.75)


def test_every_milestone_says_what_it_is_measured_from() -> None:
    assert set(MEASURED_FROM) == set(Milestone)


# ---------------------------------------------------------------- many requests
@pytest.mark.parametrize("rate", [333, 1_000])
def test_shares_and_p99_are_right_at_any_rate(rate: int) -> None:
    """2 % late, as in a run of 90 s: three windows, so that old values have been dropped."""
    clock = Clock()
    latencies = LatencyTable(RedLines(), clock=clock)
    for request in range(90 * rate):
        clock.now = 100.0 + request / rate
        late = request % 50 == 0
        if late:
            latencies.overdue("v1", TOKEN)
        latencies.observe("v1", TOKEN, 0.7 if late else 0.1)
    (row,) = latencies.rows(clock.now)
    assert abs(row.requests - 30 * rate) <= 1
    assert row.over_share == pytest.approx(0.02, abs=1e-4)
    assert (row.p50_s, row.p99_s) == (0.1, 0.7)
    assert latencies.recent_p99("v1", clock.now) == 0.7


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.0, 3.0), st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.booleans()),
        max_size=400,
    ),
    st.integers(1, 400),
)
def test_a_row_equals_a_plain_count_of_the_window_that_fits(
    requests: list[tuple[float, float, bool]], most: int
) -> None:
    """Times are distinct, so that it is clear what is left of more than there is room for."""
    latencies, clock = table(most)
    outputs, crossings = [], []
    for after, seconds, hangs in requests:
        clock.now += after + 1e-3
        if seconds > 0.4 or hangs:
            latencies.overdue("v1", TOKEN)
            crossings.append(clock.now)
        if not hangs:
            latencies.observe("v1", TOKEN, seconds)
            outputs.append((clock.now, seconds))
    since = clock.now - 30.0
    for kept in ([at for at, _ in outputs], crossings):
        since = max(since, kept[-most]) if len(kept) > most else since
    recent = sorted(seconds for at, seconds in outputs if at >= since)
    crossed = sum(at >= since for at in crossings)
    within = sum(seconds <= 0.4 for seconds in recent)
    for row in latencies.rows(clock.now):
        assert row.requests == within + crossed
        assert (row.p50_s, row.p99_s) == (inverted_cdf(recent, 0.5), inverted_cdf(recent, 0.99))
        assert row.over_share == (crossed / row.requests if row.requests else None)


def test_a_window_cut_short_for_want_of_room_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    latencies, clock = table(most=50)
    for _ in range(200):
        clock.now += 0.01
        latencies.observe("v1", TOKEN, 0.1)
    assert [record.message for record in caplog.records] == [
        "more than 50 values in 30 s: counted over 0.49 s"
    ]


def test_values_take_bounded_room_and_give_it_back() -> None:
    recent = Recent(window_s=30.0, most=10_000)
    for at in range(100_000):
        recent.add(at / 1000, 0.1)
    assert len(recent.since(0.0)) == 10_000
    assert recent.room <= 20_000 + 256
    for at in range(100, 11_000):
        recent.add(float(at), 0.1)
    assert recent.room < 1_000
