"""Undoing and applying a model's rotary positions on keys (RoPE, Su et al. 2021; TMRoPE, S2.1).

Keys are kept rotated. A basis for them is learned on unrotated ones, which vary far less, so
whoever packs or unpacks a page in a subspace needs the positions of its tokens; a page is always
read through a sequence, and that knows them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Positions (3, n) to cosine and sine (n, head_dim), as the model itself would use them.
Rotary = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Of tokens: `cos` and `sin` `(..., head_dim)`, in the halves layout of Llama and Qwen."""

    cos: Tensor
    sin: Tensor

    def __getitem__(self, at: Tensor | tuple[Tensor, ...]) -> "Rotation":
        return Rotation(self.cos[at], self.sin[at])

    def apply(self, keys: Tensor) -> Tensor:
        """Rotate `(..., kv_heads, head_dim)`, leading dimensions as of the tokens."""
        cos, sin = self.cos.unsqueeze(-2), self.sin.unsqueeze(-2)
        return keys * cos + _turned(keys) * sin

    def undo(self, keys: Tensor) -> Tensor:
        """Inverse of `apply`, also where the model scales its rotation (YaRN)."""
        cos, sin = self.cos.unsqueeze(-2), self.sin.unsqueeze(-2)
        return (keys * cos - _turned(keys) * sin) / (cos * cos + sin * sin)


def _turned(keys: Tensor) -> Tensor:
    low, high = keys.chunk(2, dim=-1)
    return torch.cat([-high, low], -1)
