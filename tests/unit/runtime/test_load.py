"""How much of a window an engine worked, from a counter that starts again with it."""

import pytest

from runtime.load import BusyShare


def fed(*seen: tuple[float, float]) -> float | None:
    share = BusyShare(30.0)
    for now, busy_s in seen:
        share.add(now, busy_s)
    return share.value


@pytest.mark.parametrize(
    ("seen", "share"),
    [
        ((), None),
        (((0.0, 0.0),), None),
        (((0.0, 0.0), (14.9, 10.0)), None),  # under half of the window
        (((0.0, 0.0), (15.0, 7.5)), 0.5),
        (((0.0, 5.0), (30.0, 5.0)), 0.0),
        (((0.0, 0.0), (30.0, 30.5)), 1.0),  # two clocks
        (((0.0, 0.0), (100.0, 10.0), (130.0, 40.0)), 1.0),
        (((0.0, 90.0), (20.0, 99.0), (21.0, 0.5)), None),  # a new process counts from 0
    ],
)
def test_the_share_is_of_the_window_that_was_seen(
    seen: tuple[tuple[float, float], ...], share: float | None
) -> None:
    assert fed(*seen) == share


def test_every_second_of_an_hour_is_of_its_own_window() -> None:
    share = BusyShare(30.0)
    for now in range(3_600):
        share.add(float(now), 0.25 * now)
    assert share.value == pytest.approx(0.25)
