"""The load model of the ladder's bench: a queue as theory has it, and rules that differ."""

import pytest

from bench.alerts_ladder import (
    SHAPE,
    WORK_S,
    Naive,
    Server,
    Swing,
    WithForecast,
    replay,
    sine,
)
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
    ladder, naive = (replay(swing, rule(), seed=3, seconds=900) for rule in (WithForecast, Naive))
    assert ladder.transitions < naive.transitions
    assert ladder.above < naive.above
    assert ladder.late < naive.late
