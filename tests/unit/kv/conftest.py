"""One tiny language model for all tests of the cache."""

import pytest

from tests.unit.kv.tiny_text import TinyText


@pytest.fixture(scope="session")
def tiny() -> TinyText:
    return TinyText()
