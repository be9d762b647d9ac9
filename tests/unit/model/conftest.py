from pathlib import Path

import pytest

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from tests.unit.model.dense import DenseThinker


@pytest.fixture(scope="session")
def loaded(tiny_checkpoint: Path) -> Checkpoint:
    return checkpoint.load(tiny_checkpoint)


@pytest.fixture(scope="session")
def processor(loaded: Checkpoint) -> Processor:
    return Processor(loaded)


@pytest.fixture(scope="session")
def dense(loaded: Checkpoint) -> DenseThinker:
    return DenseThinker(loaded)
