"""What tests of several rooms share. Torch is imported only when a test asks for a checkpoint."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny checkpoint "tiny-test-1", made once per run."""
    import torch

    from runtime.model import checkpoint

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    return checkpoint.create(folder, version="tiny-test-1", seed=1)
