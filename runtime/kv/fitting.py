"""Learning a subspace from K and V: which directions a pair of layers uses, and bits for each.

Bits go where they save the most error: coordinates of a Gaussian, one price for a bit in all of
a unit (reverse water-filling, Cover and Thomas 10.3.3). Every unit has the same budget: on a
trained model that loses less than one price for all units, and pages are of one size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.kv.rotation import Rotary
from runtime.kv.subspace import WIDTHS, Basis, Layers, Subspace, Unit

# What is left of a unit variance after the best uniform quantiser of so many bits (Max 1960).
_LEFT = {8: 8e-5, 4: 0.01154, 2: 0.1188, 0: 1.0}
_LEAST_VARIANCE = 1e-10  # of the largest: a direction never seen still has a finite coordinate


class Moments:
    """Count, sum and second moments of rows `(n, channels)`, in float64."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self._sum = torch.zeros(channels, dtype=torch.float64)
        self._outer = torch.zeros(channels, channels, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        rows = rows.double().cpu()
        self.count += len(rows)
        self._sum += rows.sum(0)
        self._outer += rows.T @ rows

    def mean(self) -> Tensor:
        return self._sum / self.count

    def covariance(self) -> Tensor:
        return self._outer / self.count - self.mean()[:, None] * self.mean()[None]


class TooFewTokens(ValueError):
    """Fewer tokens than channels: their covariance says nothing of most directions."""


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Of K or V in one unit: variances by falling size, and their directions in columns."""

    mean: Tensor
    variances: Tensor
    vectors: Tensor


class SubspaceFit:
    """Collects K (unrotated) and V of a model's layers, and fits all units to them."""

    def __init__(self, layers: int, channels: int, solo: Sequence[int] = ()) -> None:
        """`solo`: layers whose page an alias may share, which need a basis of their own."""
        pairs = [tuple(range(k, min(k + 2, layers))) for k in range(0, layers, 2)]
        units: list[Layers] = [*pairs, *((k,) for k in solo if (k,) not in pairs)]
        self._moments = {
            unit: (Moments(len(unit) * channels), Moments(len(unit) * channels)) for unit in units
        }

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Both `(layers, tokens, kv_heads, head_dim)`."""
        for unit, halves in self._moments.items():
            for moments, half in zip(halves, (keys, values), strict=True):
                moments.add(half[list(unit)].transpose(0, 1).flatten(1))

    def fit(self, bits: float, rotary: Rotary) -> Subspace:
        """`bits` a number on average, over K and over V, a token's scale not counted.

        Raises `TooFewTokens`.
        """
        units = {
            layers: Unit(layers, *(_basis(_spectrum(m), bits) for m in halves))
            for layers, halves in self._moments.items()
        }
        return Subspace(units, rotary)


def allocate(variances: Tensor, bits: float) -> Tensor:
    """Bits of each coordinate `(channels,)`: about `bits` on average, never more."""
    widths = torch.tensor([*WIDTHS, 0], dtype=torch.float64)
    left = torch.tensor([_LEFT[int(width)] for width in widths], dtype=torch.float64)
    every = variances.double()
    low, high = every.max() * 2.0**-60, every.max()
    for _ in range(100):
        price = (low * high).sqrt()
        chosen = widths[(every[:, None] * left + price * widths).argmin(1)]
        low, high = (price, high) if chosen.mean() > bits else (low, price)
    return widths[(every[:, None] * left + high * widths).argmin(1)].long()


def _spectrum(moments: Moments) -> _Spectrum:
    covariance = moments.covariance()
    if moments.count < len(covariance):
        raise TooFewTokens(
            f"{moments.count} tokens are too few for {len(covariance)} channels: calibrate on more"
        )
    variances, vectors = torch.linalg.eigh(covariance)
    variances = variances.flip(0)
    variances = variances.clamp_min(float(variances[0]) * _LEAST_VARIANCE)
    return _Spectrum(moments.mean(), variances, vectors.flip(1))


def _basis(spectrum: _Spectrum, bits: float) -> Basis:
    widths = allocate(spectrum.variances, bits)
    counts = _whole_bytes([int((widths == width).sum()) for width in WIDTHS], len(widths))
    kept = sum(counts)
    return Basis(
        mean=spectrum.mean.bfloat16(),
        vectors=spectrum.vectors[:, :kept].bfloat16(),
        deviations=spectrum.variances[:kept].sqrt().float(),
        counts=counts,
    )


def _whole_bytes(counts: Sequence[int], channels: int) -> tuple[int, int, int]:
    """Fill the bytes of each width up from the next lower one; where there is none, go higher."""
    eights, fours, twos = counts
    if fours % 2 and eights + fours == channels:
        eights, fours = eights + 1, fours - 1
    elif fours % 2:
        fours, twos = fours + 1, max(0, twos - 1)
    free = channels - eights - fours
    return eights, fours, min(twos + -twos % 4, free - free % 4)
