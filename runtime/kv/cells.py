"""Table 1 as the engine knows it: a cell for each layer and modality (S4.1)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from monitors.cache_table import CacheCell
from runtime.kv.pool import PagePool
from runtime.kv.residency import ResidencyTable
from runtime.kv.reuse import ReusePolicy
from runtime.kv.sequence import Sequence
from runtime.kv.tokens import MODALITIES


def cells(
    pool: PagePool, seen: ResidencyTable, reuse: ReusePolicy, running: Iterable[Sequence]
) -> tuple[CacheCell, ...]:
    """All cells, layer by layer; aliases are those of running sequences."""
    account, aliased = pool.account(), _aliases(running, pool.layers)
    return tuple(
        CacheCell(
            layer=layer,
            modality=modality,
            entropy_th=reuse.threshold(layer, modality),
            hit_mass=float(seen.hit[layer, code]),
            lookup_mass=float(seen.lookup[layer, code]),
            entropy_sum=float(seen.entropy_sum[layer, code]),
            entropy_count=int(seen.entropy_count[layer, code]),
            token_entropy_sum=float(seen.token_sum[layer, code]),
            token_entropy_count=int(seen.token_count[layer, code]),
            live_bytes=int(account.live[layer, code]),
            evictable_bytes=int(account.evictable[layer, code]),
            host_bytes=int(account.host[layer, code]),
            alias_pages=int(aliased[layer, code]),
        )
        for layer in range(pool.layers)
        for code, modality in enumerate(MODALITIES)
    )


def _aliases(running: Iterable[Sequence], layers: int) -> NDArray[np.int64]:
    """Page-table entries `(layers, modalities)` that point at the layer below's page."""
    counts = np.zeros((layers, len(MODALITIES)), np.int64)
    for sequence in running:
        for block in sequence.table.blocks:
            counts[block.aliased, block.modality] += 1
    return counts
