"""One loaded checkpoint for all tests of the engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from tests.unit.engine.driving import Driver


@pytest.fixture(scope="session")
def loaded(tiny_checkpoint: Path) -> Checkpoint:
    return checkpoint.load(tiny_checkpoint)


@pytest.fixture
def drive(loaded: Checkpoint) -> Callable[..., Driver]:
    """Makes engines; each must end with its invariants whole."""
    drivers: list[Driver] = []

    def make(**settings: object) -> Driver:
        drivers.append(Driver(loaded, **settings))
        return drivers[-1]

    yield make
    for driver in drivers:
        assert driver.engine.snapshot().faults == ()
