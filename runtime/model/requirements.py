"""What a checkpoint needs of the machine: a device that is there, and memory that is free."""

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from runtime.model.weights import CheckpointError

GB = 1e9
# Activations of a step beside the weights: encoder layers of a slice, logits of a prefill.
ACTIVATION_SHARE = 0.03
ACTIVATION_FLOOR = 128_000_000
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# Limit, use and reclaimable file cache, by version of the interface.
_V1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_V2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))


@dataclass(frozen=True)
class Need:
    """Bytes on one device."""

    weights: int
    dtype: torch.dtype
    pool: int = 0

    @property
    def activations(self) -> int:
        return max(ACTIVATION_FLOOR, round(self.weights * ACTIVATION_SHARE))

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.pool


def open_device(name: str) -> torch.device:
    """The device called `name`. Raises `CheckpointError` for one that this machine has not."""
    try:
        device = torch.device(name)
    except RuntimeError as err:
        raise CheckpointError(f"device {name!r}: no such device; use cpu, cuda or cuda:N") from err
    if device.type not in ("cpu", "cuda"):
        raise CheckpointError(f"device {name!r}: this engine runs on cpu and cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise CheckpointError(
            f"device {name!r}: torch {torch.__version__} finds {torch.cuda.device_count()} CUDA "
            "devices here; install its CUDA build and the driver, or use the CPU"
        )
    return device


@dataclass(frozen=True)
class Freed:
    """Bytes that another engine gives back before this one loads."""

    host: int = 0
    device: int = 0


def require_memory(
    folder: Path, need: Need, device: torch.device, freed: Freed | None = None
) -> None:
    """Raises `CheckpointError` where `need` does not fit into what `device` has free.

    For an accelerator the weights pass through the machine's own memory, so they must fit there
    too.
    """
    freed = freed or Freed()
    on_device = freed.host if device.type == "cpu" else freed.device
    refuse_too_big(folder, need, free_bytes(device) + on_device, device.type.upper())
    if device.type != "cpu":
        host = free_host_bytes() + freed.host
        refuse_too_big(folder, Need(need.weights, need.dtype), host, "CPU")


def refuse_too_big(folder: Path, need: Need, free: int, place: str) -> None:
    """Raises `CheckpointError` with both figures where `need` is more than `free` bytes."""
    if need.total > free:
        dtype = str(need.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{folder}: needs {_gb(need.total)} of memory on the {place} ({_gb(need.weights)} "
            f"weights as {dtype}, {_gb(need.activations)} activations, {_gb(need.pool)} KV pool), "
            f"but {_gb(free)} are free; free some, take a machine with more, or a smaller "
            "checkpoint or pool"
        )


def _gb(size: int) -> str:
    return f"{size / GB:.2f} GB"


def free_bytes(device: torch.device) -> int:
    """What `device` could still hand out."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_host_bytes()


def free_host_bytes() -> int:
    """What the machine has available, or the process' control group where that is less."""
    available = psutil.virtual_memory().available
    limited = cgroup_free_bytes(CGROUPS, MEMBERSHIP)
    return available if limited is None else min(available, limited)


def cgroup_free_bytes(root: Path, membership: Path) -> int | None:
    """Bytes left in the tightest control group around this process; None: no limit is set.

    `root`: where the groups are mounted; `membership`: lines of `id:controllers:/path`.
    """
    if not membership.is_file():
        return None
    lefts: list[int] = []
    for line in membership.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            lefts += _left_around(root, path, _V2)
        elif "memory" in controllers.split(","):
            lefts += _left_around(root / "memory", path, _V1)
    return min(lefts, default=None)


def _left_around(base: Path, path: str, files: tuple[str, str, tuple[str, ...]]) -> list[int]:
    """Bytes left in the group at `path` and in each around it, where they have a limit.

    Inside a container the path may be the host's: then only `base`, its own group, is there.
    """
    group = Path(path.lstrip("/"))
    lefts = (_left(base / level, *files) for level in (group, *group.parents))
    return [left for left in lefts if left is not None]


def _left(folder: Path, limit: str, usage: str, cache: tuple[str, ...]) -> int | None:
    try:
        most = (folder / limit).read_text(encoding="ascii").strip()
        used = int((folder / usage).read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, PermissionError):  # none at the root, or outside our namespace
        return None
    stat = dict(line.split(maxsplit=1) for line in lines)
    reclaimable = sum(int(stat.get(name, 0)) for name in cache)
    return None if most == "max" else max(0, int(most) - used + reclaimable)
