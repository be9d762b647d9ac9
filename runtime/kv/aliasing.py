"""Deciding which blocks of a sequence reuse the layer below's pages, and making them (S1.2)."""

from functools import partial

from runtime.kv.entropy import EntropyBuffer
from runtime.kv.reuse import NEWEST_TOKENS, SINK_BLOCKS, ReusePolicy, relative_distance
from runtime.kv.sequence import Sequence
from runtime.kv.table import PageTable


def decide(sequence: Sequence, reuse: ReusePolicy, entropy: EntropyBuffer) -> None:
    """Settle the blocks that are 64 tokens behind by now (DESIGN 5): they may point below."""
    table = sequence.table
    while sequence.decided < table.complete():
        index = sequence.decided
        tokens = table.tokens_of(index)
        if tokens.stop > table.length - NEWEST_TOKENS:
            return
        sequence.decided += 1
        if reuse.on and index >= SINK_BLOCKS:
            nats = entropy.values[sequence.row][:, tokens]
            modality, place = table.blocks[index].modality, _place(sequence, index)
            distance = partial(_distance, table, index)
            for layer in reuse.aliased_layers(modality, nats, place, distance):
                table.alias(layer, index)


def _distance(table: PageTable, index: int, layer: int) -> float:
    """Of a block's own K/V in `layer` from the layer below's."""
    block = table.blocks[index]
    keys, values = table.pool.gather(block.pages[layer - 1 : layer + 1])
    below, own = ((keys[i, : block.fill], values[i, : block.fill]) for i in range(2))
    return relative_distance(own, below)


def _place(sequence: Sequence, block: int) -> bytes:
    """Names a block to a reuse rule: alike in all sequences whose prompts are alike up to it."""
    before = min(block, len(sequence.keys))
    return sequence.parent_key(before) + block.to_bytes(8, "little")
