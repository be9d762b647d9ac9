"""The world that most tests of the controller happen in."""

from collections.abc import Iterator

import pytest

from tests.support.journals import ScratchJournal
from tests.unit.rollout.world import World


@pytest.fixture
def world() -> Iterator[World]:
    journal = ScratchJournal()
    yield World(journal)
    journal.close()
