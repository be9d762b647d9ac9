"""A comparison of pixels that breaks in the engine harms no request."""

from typing import NoReturn

import pytest

from monitors.detectors import operations
from runtime.residents.port import VideoPrefilled
from tests.support.asking import ask
from tests.unit.engine.test_engine import Drive


def broken(*_: object) -> NoReturn:
    raise ArithmeticError("what the client said")


def test_a_request_is_answered_though_its_pixels_cannot_be_compared(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, broken_detectors: list[str]
) -> None:
    driver = drive()
    driver.run(ask("before", media=2))
    monkeypatch.setattr(operations, "compare", broken)
    driver.run(ask("hurt", media=2))
    (prefilled,) = driver.of("hurt", VideoPrefilled)
    assert prefilled.mean_abs_error is None, "unknown, which is not 0"
    assert driver.text("hurt") == driver.text("before")
    (line,) = broken_detectors
    assert line.startswith("the detector operations failed: ArithmeticError")
