"""The load model of the ladder's bench: a queue as theory has it, and rules that differ."""

import pytest

from bench.alerts_ladder import Latch, Naive, WithForecast, replay
from bench.ladder_load import SHAPE, SWINGS, WORK_S, Server, Swing, once, sine
from monitors.contract import MediaRung


@pytest.mark.parametrize("rung", [MediaRung.FULL, MediaRung.P360_8K])
def test_the_server_waits_as_long_as_pollaczek_and_khinchine_say(rung: MediaRung) -> None:
    rate, work_s = 35.0, WORK_S * {MediaRung.FULL: 1.0, MediaRung.P360_8K: 0.55}[rung]
    swing = Swing("even", lambda *_: rate)
    server, busy, sojourns = Server(swing, 7), list[float](), list[float]()
    observe = server.table.observe
    server.table.observe = lambda *args: (sojourns.append(args[2]), observe(*args))[1]
    for _ in range(1_500):
        server.second(rung)
        busy.append(server.busy_share())
    load = rate * work_s
    expected = work_s + load * work_s * (1 + 1 / SHAPE) / (2 * (1 - load))
    assert sum(sojourns) / len(sojourns) == pytest.approx(expected, rel=0.1)
    assert sum(busy) / len(busy) == pytest.approx(load, rel=0.05)


def test_over_the_same_arrivals_the_ladder_moves_less_and_is_late_less_than_the_naive_rule() -> (
    None
):
    swing = Swing("sine of 4 minutes", sine(240, 30.0, 49.0))
    (ladder,), (naive,) = (
        replay(swing, rule(), seed=3, hours=1, hour_s=900) for rule in (WithForecast, Naive)
    )
    assert 0 < ladder.transitions < naive.transitions
    assert ladder.above < naive.above
    assert ladder.late < naive.late


def test_a_latch_never_comes_back_and_the_ladder_does() -> None:
    swing = Swing("a burst", once(10.0, 60.0, 10.0, 60.0))
    (_, ladder), (_, latch) = (
        replay(swing, rule(), seed=3, hours=2, hour_s=1_500) for rule in (WithForecast, Latch)
    )
    assert (latch.transitions, latch.full) == (0, 0.0)
    assert ladder.full > 0.5


@pytest.mark.parametrize("swing", SWINGS, ids=lambda swing: swing.name)
def test_the_arrivals_are_the_same_whoever_was_replayed_before(swing: Swing) -> None:
    (first, again), other = (
        [Server(swing, seed) for _ in range(many)] for seed, many in ((1, 2), (2, 1))
    )
    for server in (first, *other, again):
        for _ in range(60):
            server.second(MediaRung.FULL)
    assert again.asked == first.asked
    assert again.table.rows() == first.table.rows()
