"""The world that most tests of the controller happen in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitors.journal import Journal
from tests.unit.rollout.world import World


@pytest.fixture
def world() -> Iterator[World]:
    journal = Journal(Path(":memory:"))
    yield World(journal)
    journal.close()
