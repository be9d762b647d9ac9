"""A prompt as the cache sees it: token ids, modalities, positions and where its media come from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitors.labels import Modality
from runtime.kv.formats import PAGE_TOKENS

MODALITIES: tuple[Modality, ...] = tuple(Modality)
CODE: dict[Modality, int] = {modality: code for code, modality in enumerate(MODALITIES)}
TEXT = CODE[Modality.TEXT]
PREFILL_TOKENS = 256  # of one slice: nothing more urgent waits longer than that


@dataclass(frozen=True)
class MediaSpan:
    """Tokens `start` to `stop` come from the media slice with this digest."""

    start: int
    stop: int
    digest: str


@dataclass(frozen=True, eq=False)
class PromptTokens:
    """`ids` and `codes` (indices into `MODALITIES`) are `(n,)`, `positions` `(3, n)`.

    Spans of `media` stand in order and do not overlap. Nothing in it changes: keys are kept by it.
    """

    ids: NDArray[np.int64]
    codes: NDArray[np.int8]
    positions: NDArray[np.int64]
    media: tuple[MediaSpan, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


def layout(codes: NDArray[np.int8]) -> list[tuple[int, int]]:
    """Blocks `(start, stop)` of a token run: at most 16 tokens, one modality each.

    The last one may still be open; every other one is complete, full or cut short.
    """
    if not len(codes):
        return []
    cuts = np.flatnonzero(np.diff(codes)) + 1
    runs = zip([0, *cuts.tolist()], [*cuts.tolist(), len(codes)], strict=True)
    return [
        (start, min(start + PAGE_TOKENS, stop))
        for run, stop in runs
        for start in range(run, stop, PAGE_TOKENS)
    ]


def complete_blocks(codes: NDArray[np.int8]) -> list[tuple[int, int]]:
    """The blocks of `layout` that no later token can join."""
    blocks = layout(codes)
    if blocks and blocks[-1][1] - blocks[-1][0] < PAGE_TOKENS:
        blocks.pop()
    return blocks


def restorable_blocks(tokens: PromptTokens) -> list[tuple[int, int]]:
    """Blocks that a prefix may cover: never the last prompt token, as its logits are needed."""
    return [block for block in complete_blocks(tokens.codes) if block[1] < len(tokens)]
