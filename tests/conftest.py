"""What tests of several rooms share. Torch is imported only when a test asks for a checkpoint."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shipped_checkpoint() -> Path:
    """Folder of the trained "tiny-omni-1" that ships: it answers in a few words, and reuse is on.

    Not to be changed.
    """
    import torch

    from runtime.model.shipped import SHIPPED

    torch.set_num_threads(1)
    return SHIPPED["tiny-omni-1"]


@pytest.fixture(scope="session")
def tiny_checkpoint(shipped_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of "tiny-test-1": the shipped one with reuse off, and its text never ends by itself.

    For what needs a request that runs on to `max_tokens`. Made once per run.
    """
    from tests.support.checkpoints import endless

    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    return endless(shipped_checkpoint, folder, "tiny-test-1")
