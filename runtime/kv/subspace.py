"""Pages as coordinates in a basis that a pair of layers shares (DESIGN 5).

K (before its rotation) and V of two neighbouring layers are laid side by side and written in the
eigenvectors of their calibrated covariance. A coordinate gets 8, 4, 2 or 0 bits, as many as its
variance is worth (reverse water-filling, Cover and Thomas 10.3.3), and a token one scale for all,
so a page takes bytes for the tokens in it and none for empty slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from runtime.kv.quantise import join_codes, split_codes
from runtime.kv.rotation import Rotary

WIDTHS = (8, 4, 2)  # bits
Layers = tuple[int, ...]  # two neighbours, or one by itself

# The step of the best uniform quantiser of a unit Gaussian (Max 1960), by bits.
_STEPS = {8: 0.0308, 4: 0.335, 2: 0.996}
# Scales a token may choose from: few tokens are as large as a Gaussian says.
_SCALES = 2.0 ** (torch.arange(-3, 8) / 2)


@dataclass(frozen=True, eq=False)
class Basis:
    """Of K or of V in a unit of layers, `channels` numbers a token.

    `vectors` `(channels, kept)` are orthonormal, by falling `deviations` `(kept,)`; `mean` is
    `(channels,)`. `counts`: how many coordinates have 8, 4 and 2 bits, in this order.
    """

    mean: Tensor
    vectors: Tensor
    deviations: Tensor
    counts: tuple[int, int, int]

    def to(self, device: torch.device) -> "Basis":
        parts = (part.to(device) for part in (self.mean, self.vectors, self.deviations))
        return Basis(*parts, counts=self.counts)

    @property
    def row_bytes(self) -> int:
        """A token: its codes, and which scale it chose."""
        return sum(n * bits // 8 for n, bits in zip(self.counts, WIDTHS, strict=True)) + 1

    @property
    def nbytes(self) -> int:
        return self.mean.nbytes + self.vectors.nbytes + self.deviations.nbytes

    def pack(self, numbers: Tensor) -> Tensor:
        """`(tokens, channels)` float32 to bytes `(tokens, row_bytes)`."""
        whitened = (numbers - self.mean.float()) @ self.vectors.float() / self.deviations
        codes, choice = self._nearest(whitened)
        parts = [
            join_codes(part.to(torch.uint8), bits)
            for part, bits in zip(codes.split(list(self.counts), 1), WIDTHS, strict=True)
        ]
        return torch.cat([*parts, choice[:, None].to(torch.uint8)], 1)

    def unpack(self, rows: Tensor, channels: slice) -> Tensor:
        """Inverse of `pack` for some of the channels: `(tokens, those)` float32."""
        sizes = [n * bits // 8 for n, bits in zip(self.counts, WIDTHS, strict=True)]
        *joined, choice = rows.split([*sizes, 1], 1)
        parts = [split_codes(part, bits) for part, bits in zip(joined, WIDTHS, strict=True)]
        steps, middle = self._grid
        whitened = (torch.cat(parts, 1).float() - middle) * (steps * self.deviations)
        scaled = whitened * self._scales[choice.long()]
        return scaled @ self.vectors[channels].float().T + self.mean[channels].float()

    def _nearest(self, whitened: Tensor) -> tuple[Tensor, Tensor]:
        """Codes by the scale that errs least, and that scale's number, for each token."""
        steps, middle = self._grid
        weight = self.deviations**2
        best = torch.full_like(whitened[:, 0], torch.inf)
        codes, choice = torch.zeros_like(whitened), torch.zeros_like(best, dtype=torch.long)
        for number, scale in enumerate(_SCALES.tolist()):
            tried = (whitened / (steps * scale) + middle).round()
            tried = tried.clamp_min(0).minimum(2 * middle)
            error = ((tried - middle) * (steps * scale) - whitened).square() @ weight
            better = error < best
            best = torch.where(better, error, best)
            choice = torch.where(better, number, choice)
            codes = torch.where(better[:, None], tried, codes)
        return codes, choice

    @cached_property
    def _scales(self) -> Tensor:
        return _SCALES.to(self.vectors.device)

    @cached_property
    def _grid(self) -> tuple[Tensor, Tensor]:
        """Step and middle code of each coordinate: codes lie evenly about the mean."""
        counts = torch.tensor(self.counts)
        steps = torch.tensor([_STEPS[bits] for bits in WIDTHS]).repeat_interleave(counts)
        middle = torch.tensor([(2**b - 1) / 2 for b in WIDTHS]).repeat_interleave(counts)
        device = self.vectors.device
        return steps.to(device), middle.to(device)


@dataclass(frozen=True, eq=False)
class Unit:
    """The two bases of a pair of layers, or of one layer by itself."""

    layers: Layers
    keys: Basis
    values: Basis

    def to(self, device: torch.device) -> "Unit":
        return Unit(self.layers, self.keys.to(device), self.values.to(device))

    @property
    def row_bytes(self) -> int:
        """A token of all its layers; even, so that partners count half each."""
        both = self.keys.row_bytes + self.values.row_bytes
        return both + both % 2

    def pack(self, keys: Tensor, values: Tensor) -> Tensor:
        """Unrotated K and V, each `(tokens, layers, kv_heads, head_dim)`, to bytes
        `(tokens, row_bytes)`."""
        parts = [self.keys.pack(keys.flatten(1)), self.values.pack(values.flatten(1))]
        rows = torch.cat(parts, 1)
        return torch.nn.functional.pad(rows, (0, self.row_bytes - rows.shape[1]))

    def unpack(self, rows: Tensor, layer: int, kv_heads: int) -> tuple[Tensor, Tensor]:
        """Unrotated K and V `(tokens, kv_heads, head_dim)` of one of its layers."""
        width = len(self.keys.mean) // len(self.layers)
        start = width * self.layers.index(layer)
        channels, at = slice(start, start + width), self.keys.row_bytes
        keys = self.keys.unpack(rows[:, :at], channels)
        values = self.values.unpack(rows[:, at : at + self.values.row_bytes], channels)
        shape = (len(rows), kv_heads, width // kv_heads)
        return keys.view(shape), values.view(shape)


@dataclass(frozen=True, eq=False)
class Subspace:
    """All units of a checkpoint: pairs of layers, and each layer by itself, for pages whose
    partner's layer reuses them. `rotary` is the model's."""

    units: Mapping[Layers, Unit]
    rotary: Rotary

    def to(self, device: torch.device) -> "Subspace":
        """The same, its bases on this device."""
        units = {layers: unit.to(device) for layers, unit in self.units.items()}
        return Subspace(units, self.rotary)

    def fits(self, layers: int, channels: int) -> bool:
        """Whether each layer of such a model has its place in it."""
        for pair in {self.pair(layer) for layer in range(layers)}:
            unit = self.units.get(pair)
            if unit is None:
                return False
            if {len(unit.keys.mean), len(unit.values.mean)} != {channels * len(pair)}:
                return False
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the bases."""
        return sum(u.keys.nbytes + u.values.nbytes for u in self.units.values())

    @property
    def token_bytes(self) -> int:
        """A token of all layers, where none is reused."""
        each = {self.pair(layer) for unit in self.units for layer in unit}
        return sum(self.units[layers].row_bytes for layers in each)

    @property
    def layer_row_bytes(self) -> int:
        """A token of one layer, at most."""
        return max(-(-unit.row_bytes // len(unit.layers)) for unit in self.units.values())

    def pair(self, layer: int) -> Layers:
        """The pair a layer is in; a last layer without a partner is by itself."""
        low = layer - layer % 2
        return (low, low + 1) if (low, low + 1) in self.units else (layer,)
