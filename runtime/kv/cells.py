"""Table 1 as the engine knows it: a cell for each layer and modality (S4.1)."""

from collections.abc import Iterable
from itertools import product

import numpy as np

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
    account = pool.account()
    aliased = sum((s.table.aliases for s in running), np.zeros_like(account.live))
    columns = (
        seen.hit, seen.lookup, seen.entropy.nats, seen.entropy.tokens, seen.token_entropy.nats,
        seen.token_entropy.tokens, account.live, account.evictable, account.host, aliased,
    )  # fmt: skip
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    places = product(range(pool.layers), MODALITIES)
    # By position, in the order of its fields: steps wait until all of them are there.
    return tuple(
        CacheCell(layer, modality, reuse.threshold(layer, modality), *row)
        for (layer, modality), row in zip(places, rows, strict=True)
    )
