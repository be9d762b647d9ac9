"""The page table: its matrix and its blocks are one thing, however long it grows."""

import numpy as np
import torch

from runtime.kv.audit import check
from runtime.kv.formats import PageShape
from runtime.kv.pool import PagePool
from runtime.kv.table import PageTable

LAYERS, BLOCKS = 3, 150


def test_an_alias_made_before_or_after_the_table_grows_stands_in_its_matrix() -> None:
    shape = PageShape(kv_heads=1, head_dim=4, dtype=torch.float32)
    pool = PagePool(shape, LAYERS, 2 * LAYERS * BLOCKS * shape.native_bytes)
    table = PageTable(pool, BLOCKS)

    def column(modality: int) -> np.ndarray:
        return np.array([pool.allocate(layer, modality, 0) for layer in range(LAYERS)])

    codes = [index % 2 for index in range(BLOCKS)]  # a block for each token
    table.extend(codes[:10], column)
    table.alias(1, 3)
    table.extend(codes[10:], column)
    table.alias(2, 5)
    matrix = table.matrix()
    assert matrix.shape == (LAYERS, BLOCKS)
    assert matrix[1, 3] == matrix[0, 3]
    assert matrix[2, 5] == matrix[1, 5]
    assert all((matrix[:, i] == block.pages).all() for i, block in enumerate(table.blocks))
    assert check(pool, [matrix.ravel()], []) == ()
