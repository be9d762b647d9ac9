"""What a sequence has in the cache, as numbers: to learn from and to measure against."""

import torch
from torch import Tensor

from runtime.kv.cache import KvCache
from runtime.kv.rotation import Rotary
from runtime.kv.sequence import Sequence


def unrotated(kv: KvCache, sequence: Sequence, rotary: Rotary) -> tuple[Tensor, Tensor]:
    """K before its rotation, and V, of all tokens: `(layers, tokens, kv_heads, head_dim)`."""
    table = sequence.table
    rotation = table.rotation(slice(None), rotary)
    block, slot = torch.from_numpy(table.block_of), torch.from_numpy(table.offset_of)
    keys, values = [], []
    for pages in table.matrix():
        k, v = kv.pool.gather(pages, rotation)
        keys.append(rotation[block, slot].undo(k[block, slot].float()))
        values.append(v[block, slot].float())
    return torch.stack(keys), torch.stack(values)
