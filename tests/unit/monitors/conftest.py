"""Both stores of a journal, for tests of what they have in common."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

Fresh = Callable[[], Path | str]


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Fresh:
    """Where a journal may be that nobody has made yet; another place each time."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres").fresh
    numbers = count()
    return lambda: tmp_path / f"{next(numbers)}.db"


@pytest.fixture
def where(fresh: Fresh) -> Path | str:
    """One such place."""
    return fresh()
