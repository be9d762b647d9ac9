"""Cross-modal attention entropy and residency, by hand-made numbers."""

import math
from itertools import compress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.entropy import EntropyBuffer, mass_entropy, token_entropy
from runtime.kv.residency import EntropySums, ResidencyTable, carriers, residency


def by_modality(*masses: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-sum-exps `(1, 4, heads)` of one query whose heads see these masses, and the one-hots."""
    return torch.tensor(masses).log().T[None], torch.eye(4)[None]


def test_entropy_is_ln_of_the_modalities_for_even_mass_and_zero_for_one() -> None:
    for mass, nats in (([0.25] * 4, math.log(4)), ([1.0, 0.0, 0.0, 0.0], 0.0)):
        lse, onehot = by_modality(mass)
        assert mass_entropy(lse, onehot, torch.tensor([4])).item() == pytest.approx(nats, abs=1e-6)


def test_pieces_of_one_modality_count_as_one() -> None:
    lse, onehot = (
        torch.tensor([0.5, 0.25, 0.25]).log()[None, :, None],
        torch.eye(4)[[0, 1, 1]][None],
    )
    assert mass_entropy(lse, onehot, torch.tensor([2])).item() == pytest.approx(math.log(2))


def test_entropy_is_averaged_over_heads_not_taken_of_their_mean() -> None:
    lse, onehot = by_modality([1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0])
    assert mass_entropy(lse, onehot, torch.tensor([2])).item() == pytest.approx(0.0, abs=1e-6)


def test_no_rounding_makes_entropy_negative() -> None:
    """Shares of one modality's pieces add up to a little more than 1 in float32."""
    draw = torch.Generator().manual_seed(0)
    lse = 4.0 * torch.randn(4000, 12, 8, generator=draw)
    onehot = torch.eye(4)[torch.tensor([0] * 11 + [1])][None]
    lse[:, 11] = -30.0
    in_view = torch.full((4000,), 2)
    foreign = (torch.arange(12) < 11)[None]
    share = lse.softmax(-2).transpose(-1, -2) @ onehot
    assert (share > 1.0).any(), "else this shows nothing"
    assert (mass_entropy(lse, onehot, in_view) >= 0.0).all()
    lse[:, 1:] = -120.0  # one piece alone: `inside` carries its own rounding
    inside = torch.full_like(lse, -2.4e-7)
    assert (token_entropy(lse, inside, foreign, in_view) >= 0.0).all()


def test_entropy_is_undefined_with_one_modality_in_view() -> None:
    lse, onehot = by_modality([0.25] * 4)
    foreign = torch.tensor([[False, True, True, True]])
    assert mass_entropy(lse, onehot, torch.tensor([1])).isnan().all()
    assert token_entropy(lse, torch.zeros_like(lse), foreign, torch.tensor([1])).isnan().all()


def test_token_level_entropy_leaves_out_the_own_modality_and_counts_tokens() -> None:
    lse, _ = by_modality([0.5, 0.25, 0.25, 0.0])
    inside = torch.tensor([3.0, math.log(8), math.log(2), 0.0])[None, :, None]
    foreign = torch.tensor([[False, True, True, True]])
    nats = token_entropy(lse, inside, foreign, torch.tensor([3])).item()
    assert nats == pytest.approx(math.log(2) + (math.log(8) + math.log(2)) / 2)


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
    masses = np.array([[0.1, 0.6, 0.28, 0.02], [1.0, 0.0, 0.0, 0.0], [0.25] * 4])
    assert carriers(masses).astype(int).tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40, unique=True))
def test_no_fewer_blocks_would_carry_as_much(masses: list[float]) -> None:
    chosen = carriers(np.array([masses]))[0]
    assert sum(compress(masses, chosen)) >= 0.95 * sum(masses) - 1e-12
    assert sorted(masses)[-chosen.sum() :] == sorted(compress(masses, chosen))
    assert sum(sorted(masses)[1 - chosen.sum() or len(masses) :]) < 0.95 * sum(masses) + 1e-12


def test_residency_weighs_misses_by_their_mass() -> None:
    hit, lookup = residency(
        np.array([[0.6, 0.3, 0.08, 0.02], [0.02, 0.0, 0.98, 0.0]]),
        np.array([0, 3, 3, 3]),
        np.array([[True, False, True, False], [True, True, True, True]]),
    )
    assert lookup == pytest.approx(np.array([[0.6, 0, 0, 0.38], [0, 0, 0, 0.98]]))
    assert hit == pytest.approx(np.array([[0.6, 0, 0, 0.08], [0, 0, 0, 0.98]]))


def test_undefined_entropy_counts_nowhere() -> None:
    table = ResidencyTable(layers=1)
    nats = np.array([[0.5, np.nan, 0.25]], np.float32)
    token_nats = np.array([[np.nan, 2.0, 1.5]], np.float32)
    codes = np.array([0, 0, 2], np.int8)
    table.entropy.add(nats, codes)
    table.token_entropy.add(token_nats, codes)
    assert table.entropy.nats.tolist() == [[0.5, 0, 0.25, 0]]
    assert table.entropy.tokens.tolist() == [[1, 0, 1, 0]]
    assert table.token_entropy.nats.tolist() == [[2.0, 0, 1.5, 0]]
    assert table.token_entropy.tokens.tolist() == [[1, 0, 1, 0]]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_entropies_add_up_however_many_come_at_a_time(sizes: list[int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    sums, nats, tokens = EntropySums(3), np.zeros((3, 4)), np.zeros((3, 4))
    for size in sizes:
        given, codes = rng.random((3, size)).astype(np.float32), rng.integers(0, 4, size)
        sums.add(given, codes.astype(np.int8))
        for code in range(4):
            nats[:, code] += given[:, codes == code].sum(1, dtype=np.float64)
            tokens[:, code] += (codes == code).sum()
        assert sums.nats == pytest.approx(nats)
        assert np.array_equal(sums.tokens, tokens)
