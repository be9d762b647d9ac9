"""The fence on disk: synced before an order is acknowledged, read back at start (DESIGN 1)."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from monitors.contract import Name
from runtime import durable
from runtime.router import Fence

_FILE = "fence.json"


class FenceError(RuntimeError):
    """A fence that cannot be read; guessing one could bring a revoked version back."""


class FenceFile:
    """One `fence.json` in the state folder, always a whole one."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _FILE
        self._stored: Fence | None = None

    def load(self, initial: Fence, residents: Collection[Name]) -> Fence:
        """What was last stored, or `initial` on a first start. Raises `FenceError`."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Fence)
        except FileNotFoundError:
            return initial
        except (OSError, msgspec.DecodeError) as err:
            raise FenceError(
                f"{self._path}: cannot be read ({err}); restore it, or delete it after making "
                "sure that no rollback is under way"
            ) from err
        strangers = {found.route.stable, found.route.canary} - {*residents, None}
        if strangers:
            raise FenceError(
                f"{self._path}: names {sorted(map(str, strangers))}, which the settings do not; "
                "add the resident, or delete the file to start with the settings' roles"
            )
        self._stored = found
        return found

    def store(self, fence: Fence) -> None:
        """Returns once `fence` is on the disk. Raises `OSError` where it is not."""
        if fence == self._stored:
            return
        self._stored = None  # a write that fails half-way may have left either on the disk
        durable.replace(self._path, msgspec.json.encode(fence))
        self._stored = fence
