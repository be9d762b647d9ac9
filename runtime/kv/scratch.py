"""Where pages are gathered to: one piece of memory, used again by every layer of every step.

Fresh memory for each gather would cost as much in page faults as the gather itself.
"""

import math

import torch
from torch import Tensor


class Scratch:
    """Grows to the largest gather and stays. What was gathered before is overwritten."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._memory = torch.empty(0, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def forget(self) -> None:
        """Give the memory back, and with it what was gathered last."""
        self._memory = self._memory.new_empty(0)

    def gather(self, source: Tensor, rows: Tensor) -> Tensor:
        """`source[rows]` `(n, ...)`, valid until the next call."""
        shape = (len(rows), *source.shape[1:])
        size = math.prod(shape)
        if size > len(self._memory):
            # A tensor born in inference mode could not be written outside it.
            with torch.inference_mode(mode=False):
                self._memory = self._memory.new_empty(size + size // 4)
        return torch.index_select(source, 0, rows, out=self._memory[:size].view(shape))
