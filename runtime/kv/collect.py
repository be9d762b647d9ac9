"""What a sequence has in the cache, as numbers: to learn from and to measure against."""

import numpy as np
import torch
from torch import Tensor

from runtime.kv.cache import KvCache
from runtime.kv.reuse import SINK_BLOCKS
from runtime.kv.rotation import Rotary
from runtime.kv.sequence import Sequence


def unrotated(kv: KvCache, sequence: Sequence, rotary: Rotary) -> tuple[Tensor, Tensor]:
    """K before its rotation, and V: `(layers, tokens, kv_heads, head_dim)`.

    Without the first block: attention sinks are like no other token, and are not put into a
    subspace.
    """
    table = sequence.table
    rotation = table.rotation(slice(None), rotary)
    others = table.block_of >= SINK_BLOCKS
    places = (table.block_of[others], table.offset_of[others])
    block, slot = (torch.from_numpy(of.astype(np.int64)) for of in places)
    keys, values = [], []
    for pages in table.matrix():
        k, v = kv.pool.gather(pages, rotation)
        keys.append(rotation[block, slot].undo(k[block, slot].float()))
        values.append(v[block, slot].float())
    return torch.stack(keys), torch.stack(values)
