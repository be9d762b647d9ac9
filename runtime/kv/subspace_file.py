"""`subspace.safetensors` beside a checkpoint: its bases, bound to these very weights."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from runtime.kv.calibration import CalibrationError
from runtime.kv.rotation import Rotary
from runtime.kv.subspace import Basis, Layers, Subspace, Unit

SUBSPACE_FILE = "subspace.safetensors"


class SubspaceError(CalibrationError):
    """No usable bases; the message says where and what to do."""


def save(subspace: Subspace, checkpoint: Path, weights_digest: str) -> Path:
    """Write the file whole or not at all."""
    tensors: dict[str, Tensor] = {}
    for unit in subspace.units.values():
        for half, basis in (("keys", unit.keys), ("values", unit.values)):
            name = f"{_name(unit.layers)}.{half}"
            tensors[f"{name}.mean"] = basis.mean.contiguous()
            tensors[f"{name}.vectors"] = basis.vectors.contiguous()
            tensors[f"{name}.deviations"] = basis.deviations.contiguous()
            tensors[f"{name}.counts"] = torch.tensor(basis.counts)
    path = checkpoint / SUBSPACE_FILE
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"weights_digest": weights_digest})
    partial.replace(path)
    return path


def load(
    checkpoint: Path,
    weights_digest: str,
    rotary: Rotary,
    device: torch.device,
    *,
    layers: int,
    channels: int,
) -> Subspace:
    """For a model of so many layers, and numbers in a token's K. Raises `SubspaceError`."""
    path = checkpoint / SUBSPACE_FILE
    again = "make them with redline bases, or store pages in another form"
    if not path.exists():
        raise SubspaceError(f"{path}: there are no bases for this checkpoint; {again}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            if (file.metadata() or {}).get("weights_digest") != weights_digest:
                raise SubspaceError(f"{path}: the bases are of other weights; {again}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        units = [_unit(name, tensors) for name in sorted({n.split(".")[0] for n in tensors})]
    except SubspaceError:
        raise
    except (SafetensorError, KeyError, ValueError) as err:
        raise SubspaceError(f"{path}: {err}; {again}") from err
    found = Subspace({unit.layers: unit for unit in units}, rotary)
    if not found.fits(layers, channels):
        raise SubspaceError(f"{path}: the bases are of another shape; {again}")
    return found


def _name(layers: Layers) -> str:
    return "layers_" + "_".join(map(str, layers))


def _unit(name: str, tensors: dict[str, Tensor]) -> Unit:
    layers = tuple(int(part) for part in name.split("_")[1:])
    keys, values = (_basis(f"{name}.{half}", tensors) for half in ("keys", "values"))
    return Unit(layers, keys, values)


def _basis(name: str, tensors: dict[str, Tensor]) -> Basis:
    eights, fours, twos = tensors[f"{name}.counts"].tolist()
    return Basis(
        mean=tensors[f"{name}.mean"],
        vectors=tensors[f"{name}.vectors"],
        deviations=tensors[f"{name}.deviations"],
        counts=(eights, fours, twos),
    )
