"""What tests of several rooms share. Torch is imported only when a test asks for a checkpoint."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from tests.support.postgres import Cluster


WAITING = "tests/e2e/", "tests/integration/", "tests/rules/"


class _Lanes(LoadScopeScheduling):
    """What waits for processes more than it computes runs in one worker, a test at a time, beside
    all the others, file by file. No two stacks share the machine, nor do its cores idle meanwhile.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "waiting" if nodeid.startswith(WAITING) else nodeid.split("::", 1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """How `pytest -n 2` shares the tests out."""
    return _Lanes(config, log)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection need look at it again, which
    takes a tenth of the whole suite's time else."""
    gc.collect()
    gc.freeze()


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def broken_detectors() -> Iterator[list[str]]:
    """What the log says of detectors that broke in this test. It means them to."""
    kept, log = _Kept(), logging.getLogger("monitors.detectors.finding")
    log.addHandler(kept)
    yield kept.lines
    log.removeHandler(kept)


@pytest.fixture(autouse=True)
def no_detector_breaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No request fails for a detector, so no test would notice: a broken one fails its test."""
    kept, log = _Kept(), logging.getLogger("monitors.detectors.finding")
    log.addHandler(kept)
    yield
    log.removeHandler(kept)
    assert "broken_detectors" in request.fixturenames or not kept.lines, kept.lines


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


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Cluster]":
    """A real PostgreSQL, started once per run. A test that stops it starts it again."""
    from tests.support.postgres import MISSING, programs, running_cluster

    found = programs()
    if found is None:
        pytest.skip(MISSING)
    with running_cluster(found) as cluster:
        yield cluster
