"""A small file that is whole on disk whenever the process or the machine dies."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put `content` in place of what the file had; on the disk, name and all, when this returns.

    Raises `OSError`: then the file has the one or the other, whole.
    """
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
