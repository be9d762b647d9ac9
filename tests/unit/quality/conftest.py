"""One loaded checkpoint for all tests of the runner; its text never ends by itself."""

from pathlib import Path

import pytest

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint


@pytest.fixture(scope="session")
def loaded(tiny_checkpoint: Path) -> Checkpoint:
    return checkpoint.load(tiny_checkpoint)
