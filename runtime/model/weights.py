"""The weight files of a checkpoint folder: found, measured and verified before they are used."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
AGAIN = "restore the folder, or download it again"
_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_WHOLE = {"I64", "I32", "I16", "I8", "U8", "BOOL"}  # counts and masks keep their type
_HEADER_BYTES = 100_000_000  # the format's own limit
_NAMED = 3  # names that a sentence lists before it says how many more there are


class CheckpointError(ValueError):
    """A folder that cannot be served; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Sizes:
    """What the headers say: elements by floating type, and bytes of everything else."""

    floats: Mapping[torch.dtype, int]
    other_bytes: int

    @property
    def stored(self) -> torch.dtype:
        """The floating type of most of the weights."""
        return max(self.floats, key=lambda dtype: self.floats[dtype] * dtype.itemsize)

    def bytes_as(self, dtype: torch.dtype) -> int:
        """Bytes once every floating weight is `dtype`."""
        return sum(self.floats.values()) * dtype.itemsize + self.other_bytes


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of the folder. Raises `CheckpointError`."""
    if not path.parent.is_dir():
        raise CheckpointError(f"{path.parent}: no such checkpoint folder")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read: {err.strerror}; {AGAIN}") from err
    except ValueError as err:
        raise CheckpointError(f"{path}: is not JSON: {err}; {AGAIN}") from err
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: holds no JSON object; {AGAIN}")
    return found


def find(folder: Path) -> list[Path]:
    """The weight files, by the index where there is one. Raises `CheckpointError` where one is
    missing, or where the index names anything but safetensors files of this very folder."""
    names = _indexed(folder) if (folder / INDEX).exists() else [WEIGHTS]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: {len(missing)} of {len(names)} weight files are missing: "
            f"{listed(missing)}; {AGAIN}"
        )
    return [folder / name for name in names]


def _indexed(folder: Path) -> list[str]:
    index = folder / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: has no weight_map; {AGAIN}")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # A link inside the folder may point anywhere (a hub's cache is made of them); a name not.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: names {name!r}; only safetensors files of its own folder are opened"
            )
    return names


def measure(shards: list[Path]) -> Sizes:
    """Sizes by the headers alone; no weight is read. Raises `CheckpointError` for a file that is
    not as long as its header says, or that holds what the engine does not run."""
    floats: Counter[torch.dtype] = Counter()
    other_bytes = 0
    for shard in shards:
        for name, stored_as, size in _entries(shard):
            if stored_as in _FLOATS:
                floats[_FLOATS[stored_as]] += size // _FLOATS[stored_as].itemsize
            elif stored_as in _WHOLE:
                other_bytes += size
            else:
                raise CheckpointError(
                    f"{shard}: stores {name} as {stored_as}, which this engine does not run; "
                    "use the bfloat16 checkpoint"
                )
    if not floats:
        raise CheckpointError(f"{shards[0].parent}: the weight files hold no weights; {AGAIN}")
    return Sizes(floats, other_bytes)


def _entries(shard: Path) -> list[tuple[str, str, int]]:
    """Name, stored type and bytes of each tensor, where the file has the length they add up to.

    Eight bytes of length (little-endian), as much JSON, then the data
    (https://huggingface.co/docs/safetensors).
    """
    size = shard.stat().st_size
    with shard.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_BYTES or size < 8 + length:
            raise CheckpointError(f"{shard}: is cut off inside its header, or damaged; {AGAIN}")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        spans = {name: entry["data_offsets"] for name, entry in header.items()}
        expected = 8 + length + max((stop for _, stop in spans.values()), default=0)
        entries = [(n, str(e["dtype"]), spans[n][1] - spans[n][0]) for n, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise CheckpointError(f"{shard}: its header is damaged; {AGAIN}") from err
    if size != expected:
        what = "is cut off" if size < expected else "is too long"
        raise CheckpointError(f"{shard}: {what}: it has {size} bytes of {expected}; {AGAIN}")
    return entries


def digest(shards: list[Path], on_read: Callable[[int], None] = lambda _: None) -> str:
    """blake2b over the bytes of the files one behind the other, hex: the weights' identity.
    `on_read` hears how many bytes came, each time."""
    whole = hashlib.blake2b(digest_size=16)
    for shard in shards:
        with shard.open("rb") as file:
            while block := file.read(1 << 20):
                whole.update(block)
                on_read(len(block))
    return whole.hexdigest()


def require_digest(folder: Path, found: str, expected: str) -> None:
    """Raises `CheckpointError` unless the weights are those that the manifest describes."""
    if found != expected:
        raise CheckpointError(
            f"{folder}: the weights are damaged or not its own: their digest is {found}, its "
            f"manifest says {expected}; {AGAIN}"
        )


def read(shards: list[Path]) -> dict[str, Tensor]:
    """All tensors by name, as views of the files: copy what must outlive a change of them."""
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            tensors.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return tensors


def listed(names: list[str]) -> str:
    """The first few of many names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
