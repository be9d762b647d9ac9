"""The attention that a block can expect: what it received, shrunk to what blocks like it receive.

A sequence is looked at too seldom to tell its cold blocks by itself: once as its prompt ends, and
then at one step in 64. What all of a resident's sequences showed so far fills the gap.
"""

import numpy as np
from numpy.typing import NDArray

from runtime.kv.residency import Mass
from runtime.kv.tokens import MODALITIES

PARTS = 8  # eighths of a prompt: where a block stands in it tells what is old from what is new
PRIOR_LOOKS = 64  # queries that the experience with other sequences counts for
_FIRST = 64  # blocks

Cells = NDArray[np.int64]


class Received:
    """Attention mass that each block of a sequence received on sampled steps."""

    def __init__(self, layers: int) -> None:
        self._mass = np.zeros((layers, _FIRST), np.float32)
        self._looks = np.zeros(_FIRST, np.float32)

    @property
    def nbytes(self) -> int:
        return self._mass.nbytes + self._looks.nbytes

    def note(self, mass: Mass) -> None:
        """Of one query, `(layers, blocks)`: all blocks that there are by now."""
        blocks = mass.shape[1]
        self._fit(blocks)
        self._mass[:, :blocks] += mass
        self._looks[:blocks] += 1

    def mass(self, blocks: int) -> NDArray[np.float32]:
        """`(layers, blocks)`, of all looks together."""
        self._fit(blocks)
        return self._mass[:, :blocks]

    def looks(self, blocks: int) -> NDArray[np.float32]:
        """`(blocks,)`: how often each was there to be looked at."""
        self._fit(blocks)
        return self._looks[:blocks]

    def copy(self) -> "Received":
        twin = Received(len(self._mass))
        twin._mass, twin._looks = self._mass.copy(), self._looks.copy()
        return twin

    def _fit(self, blocks: int) -> None:
        short = blocks - len(self._looks)
        if short > 0:
            more = max(short, len(self._looks))
            self._mass = np.pad(self._mass, ((0, 0), (0, more)))
            self._looks = np.pad(self._looks, (0, more))


class Experience:
    """Mean share of a query's attention by layer and cell: a modality in an eighth of the prompt.

    A share is spread evenly over the blocks of its cell, so that what short sequences taught
    holds for long ones. First blocks are left out: they hold the attention sinks.
    """

    def __init__(self, layers: int) -> None:
        self._share = np.zeros((layers, len(MODALITIES) * PARTS))
        self._looks = np.zeros(len(MODALITIES) * PARTS)

    def learn(self, mass: Mass, cells: Cells) -> None:
        """From one query of a sequence: `mass` `(layers, blocks)`, `cells` `(blocks,)`."""
        self._looks += self._crowd(cells) > 0
        np.add.at(self._share.T, cells[1:], mass[:, 1:].T)

    def expected(self, received: Received, cells: Cells) -> Mass:
        """Mean mass of a query that each block can expect, `(layers, blocks)`.

        Where nothing was learned, attention counts as even over all blocks.
        """
        blocks, known = len(cells), self._looks > 0
        share = self._share / np.where(known, self._looks, 1.0)
        each = np.where(known, share / np.maximum(self._crowd(cells), 1), 1.0 / max(1, blocks))
        looks = received.looks(blocks)
        mass = PRIOR_LOOKS * each[:, cells] + received.mass(blocks)
        return (mass / (PRIOR_LOOKS + looks)).astype(np.float64)

    def _crowd(self, cells: Cells) -> Cells:
        """Blocks in each cell."""
        return np.bincount(cells[1:], minlength=len(self._looks))


def cells_of(modality: Cells, start: Cells, prompt: int) -> Cells:
    """The cell of each block, from its modality and first token; an answer's are in the last
    eighth of the prompt of so many tokens."""
    return modality * PARTS + np.minimum(start * PARTS // max(1, prompt), PARTS - 1)
