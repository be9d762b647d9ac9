"""Cross-modal attention entropy and residency, by hand-made numbers."""

import math

import numpy as np
import pytest
import torch

from runtime.kv.entropy import EntropyBuffer, cross_modal_entropy
from runtime.kv.residency import ResidencyTable, carriers, residency


def test_entropy_is_ln_of_the_modalities_for_even_mass_and_zero_for_one() -> None:
    mass = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]])
    nats = cross_modal_entropy(mass, torch.tensor([4, 4]))
    assert nats.tolist() == pytest.approx([math.log(4), 0.0], abs=1e-6)


def test_entropy_is_averaged_over_heads_not_taken_of_their_mean() -> None:
    mass = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert cross_modal_entropy(mass, torch.tensor([2])).item() == pytest.approx(0.0, abs=1e-6)


def test_entropy_is_undefined_with_one_modality_in_view() -> None:
    assert cross_modal_entropy(torch.ones(1, 1, 4) / 4, torch.tensor([1])).isnan().all()


def test_the_buffer_grows_in_batch_and_sequence_and_forgets_closed_rows() -> None:
    buffer = EntropyBuffer(layers=2)
    rows = [buffer.open() for _ in range(3)]
    buffer.write(rows[2], 290, np.ones((2, 20), np.float32))
    assert buffer.values.shape[0] >= 3
    assert buffer.values.shape[2] >= 310
    assert np.nansum(buffer.values) == 40
    buffer.close(rows[2])
    assert np.isnan(buffer.values[buffer.open()]).all()


def test_carriers_are_the_fewest_blocks_with_95_percent() -> None:
    assert carriers(np.array([0.1, 0.6, 0.28, 0.02])).tolist() == [1, 2, 0]
    assert carriers(np.array([1.0, 0.0])).tolist() == [0]


def test_residency_weighs_misses_by_their_mass() -> None:
    hit, lookup = residency(
        np.array([0.6, 0.3, 0.08, 0.02]),
        np.array([0, 3, 3, 3]),
        np.array([True, False, True, False]),
    )
    assert lookup == pytest.approx([0.6, 0, 0, 0.38])
    assert hit == pytest.approx([0.6, 0, 0, 0.08])


def test_undefined_entropy_counts_nowhere() -> None:
    table = ResidencyTable(layers=1)
    zero = np.zeros((1, 4))
    nats = np.array([[0.5, np.nan, 0.25]], np.float32)
    table.add(zero, zero, nats, np.array([0, 0, 2], np.int8))
    assert table.entropy_sum.tolist() == [[0.5, 0, 0.25, 0]]
    assert table.entropy_count.tolist() == [[1, 0, 1, 0]]
