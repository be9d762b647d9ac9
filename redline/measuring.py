"""A checkpoint loaded for measuring, with a bar on standard error and sentences for mistakes."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from redline.sentences import fail

if TYPE_CHECKING:
    from runtime.model.checkpoint import Checkpoint

MEGABYTE = 1_000_000


@contextmanager
def measuring(
    model: Path, device: str, pool_bytes: int
) -> Generator[tuple["Checkpoint", Callable[[int, int], None]]]:
    """The checkpoint, and what to call with what is done and how much there is in all.

    What cannot be used, or goes wrong inside, ends the command.
    """
    import torch
    from rich.console import Console
    from rich.progress import Progress
    from transformers.utils import logging as transformers_logging

    from runtime.kv.calibration import CalibrationError
    from runtime.model import checkpoint
    from runtime.quality.evaluate import EvaluationFailed
    from runtime.quality.likelihood import NotANumber, PoolTooSmall
    from runtime.quality.plan import PlanError

    torch.set_num_threads(1)  # as an engine process has it; on small matrices two only wait
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        loaded = checkpoint.load(model, device, pool_bytes=pool_bytes)
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(loaded.version)
            yield loaded, lambda done, total: bar.update(task, completed=done, total=total)
    except (checkpoint.CheckpointError, CalibrationError, PlanError) as err:
        fail(err, 2)
    except (PoolTooSmall, NotANumber, EvaluationFailed) as err:
        fail(err)


def check_folder(option: str, path: Path | None) -> None:
    """End the command before hours of work whose result would have no place to go."""
    if path is not None and not path.absolute().parent.is_dir():
        fail(f"{option} {path}: there is no such folder", 2)
