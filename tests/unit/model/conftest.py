import shutil
from pathlib import Path

import pytest

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from tests.support.checkpoints import forget_digest
from tests.unit.model.dense import DenseThinker


@pytest.fixture(scope="session")
def loaded(tiny_checkpoint: Path) -> Checkpoint:
    return checkpoint.load(tiny_checkpoint)


@pytest.fixture(scope="session")
def trained(shipped_checkpoint: Path) -> Checkpoint:
    """One that ends its text."""
    return checkpoint.load(shipped_checkpoint)


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A folder to change; its manifest names no digest, so that its weights may change too."""
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))
    forget_digest(folder)
    return folder


@pytest.fixture(scope="session")
def processor(loaded: Checkpoint) -> Processor:
    return Processor(loaded)


@pytest.fixture(scope="session")
def dense(loaded: Checkpoint) -> DenseThinker:
    return DenseThinker(loaded)
