"""Deciding which blocks of a sequence reuse the layer below's pages, and making them (S1.2)."""

from functools import partial

import torch

from runtime.kv.entropy import EntropyBuffer
from runtime.kv.reuse import NEWEST_TOKENS, SINK_BLOCKS, Likeness, ReusePolicy, likenesses
from runtime.kv.sequence import Sequence
from runtime.kv.table import PageTable


def decide(sequence: Sequence, reuse: ReusePolicy, entropy: EntropyBuffer) -> None:
    """Settle the blocks that are 64 tokens behind by now (DESIGN 5): they may point below."""
    table = sequence.table
    if table.length < sequence.decides_at:
        return
    while sequence.decided < table.complete():
        index = sequence.decided
        tokens = table.tokens_of(index)
        sequence.decides_at = tokens.stop + NEWEST_TOKENS
        if table.length < sequence.decides_at:
            return
        sequence.decided += 1
        if reuse.on and index >= SINK_BLOCKS:
            nats = entropy.values[sequence.row][:, tokens]
            modality, place = table.blocks[index].modality, _place(sequence, index)
            alike = partial(_likenesses, table, index)
            for layer in reuse.aliased_layers(modality, nats, place, alike):
                table.alias(layer, index)


def _likenesses(table: PageTable, index: int) -> list[Likeness | None]:
    """Of a block's K/V in each layer to the layer below's."""
    block, subspace = table.blocks[index], table.pool.contents.subspace
    rotation = None
    if subspace is not None:  # layers that never alias are packed by now
        here = table.rotation(slice(index, index + 1), subspace.rotary)
        rotation = here[torch.zeros(len(block.pages), dtype=torch.long)]
    keys, values = table.pool.gather(block.pages, rotation)
    return likenesses(keys[:, : block.fill], values[:, : block.fill])


def _place(sequence: Sequence, block: int) -> bytes:
    """Names a block to a reuse rule: alike in all sequences whose prompts are alike up to it."""
    before = min(block, len(sequence.keys))
    return sequence.parent_key(before) + block.to_bytes(8, "little")
