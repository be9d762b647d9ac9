"""How much traffic there is now, and whose, by a log whose clock is another machine's."""

import pytest

from monitors.contract import Evidence, Level, RequestFinished
from monitors.labels import Outcome
from rollout.traffic import Served, Traffic
from tests.support.sim_dataplane import Clock

LOG_AHEAD_S = 1_700_000_000.0  # of the reader's clock


class Scene:
    """Requests on A and B, read as they are written."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.traffic = Traffic(30.0, self.clock)
        self.ahead_s = LOG_AHEAD_S

    def serve(self, seconds: int, *, late_s: float = 0.0, **more: object) -> None:
        """A request a second on each, read `late_s` after the last of them."""
        for second in range(seconds):
            wall = self.clock() + self.ahead_s + second + 1 - (seconds if late_s else 0)
            if not late_s:
                self.clock.advance(1.0)
                wall = self.clock() + self.ahead_s
            for resident in ("a", "b"):
                self.traffic.take(finished(wall - late_s, resident, **more))


def finished(wall: float, resident: str, **more: object) -> Evidence:
    given = {"outcome": Outcome.OK, **more}
    return Evidence(
        seq=1, wall=wall, resident=resident, version="v", session="s", request_id="r",
        pool_epoch=0, route_epoch=1, level=Level(), operator=False,
        body=RequestFinished(faulted=False, outcome=Outcome(given["outcome"])),
    )  # fmt: skip


def test_what_is_read_as_it_is_written_counts_over_its_window() -> None:
    scene = Scene()
    scene.serve(100)
    assert scene.traffic.per_second() == pytest.approx(2.0, rel=0.05)
    assert scene.traffic.of("b") == Served(one=31, all=62)


def test_when_nobody_comes_any_more_there_is_no_traffic() -> None:
    scene = Scene()
    scene.serve(100)
    scene.clock.advance(15.0)
    assert scene.traffic.of("b") == Served(one=16, all=32)
    assert scene.traffic.per_second() == pytest.approx(1.5, rel=0.05)
    scene.clock.advance(3_600.0)
    assert scene.traffic.of("b") == Served(one=0, all=0)
    assert scene.traffic.per_second() is None


def test_an_old_log_that_is_read_up_counts_its_last_part_alone() -> None:
    scene = Scene()
    scene.serve(500, late_s=1_000.0)
    assert scene.traffic.of("b") == Served(one=31, all=62)
    scene.serve(2)
    assert scene.traffic.of("b") == Served(one=2, all=4)


@pytest.mark.parametrize("jump_s", [7_200.0, -7_200.0])
def test_a_calendar_clock_that_is_set_leaves_what_came_after(jump_s: float) -> None:
    scene = Scene()
    scene.serve(100)
    scene.ahead_s += jump_s
    scene.serve(10)
    assert scene.traffic.of("b") == Served(one=10, all=20)
    assert scene.traffic.per_second() == pytest.approx(2.0, rel=0.2)
    scene.clock.advance(60.0)
    assert scene.traffic.of("b") == Served(one=0, all=0)


def test_what_was_refused_was_asked_for_but_not_served() -> None:
    scene = Scene()
    scene.serve(20, outcome="refused")
    assert scene.traffic.of("b") == Served(one=0, all=0)
    assert scene.traffic.per_second() == pytest.approx(2.0, rel=0.1)
