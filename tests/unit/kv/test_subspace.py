"""Pages in a shared subspace: what they lose, what they weigh, and where their tokens are."""

from pathlib import Path

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.fitting import SubspaceFit, TooFewTokens, allocate
from runtime.kv.formats import PAGE_TOKENS, Format
from runtime.kv.quantise import Quantiser
from runtime.kv.rotation import Rotation
from runtime.kv.subspace import WIDTHS, Basis, Subspace
from runtime.kv.subspace_file import SubspaceError, load, save
from tests.unit.kv.tiny_text import LAYERS, SHAPE, TinyText, cache, opened, prompt

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
LONG = prompt((T, 20), (V, 101), (A, 61), (T, 100))


@pytest.fixture(scope="module")
def subspace(tiny: TinyText) -> Subspace:
    """Fitted on other prompts of the same model, generous with bits."""
    return tiny.subspace(bits=7.0)


def share_lost(exact: torch.Tensor, found: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_undoing_a_rotation_gives_the_keys_back(scale: float) -> None:
    keys, angle = torch.randn(5, 2, 16), torch.randn(5, 8).repeat(1, 2)
    turned = Rotation(scale * angle.cos(), scale * angle.sin())
    assert torch.allclose(turned.undo(turned.apply(keys)), keys, atol=1e-5)


@pytest.mark.parametrize("bits", [1.5, 3.0, 5.0])
def test_bits_go_to_the_largest_variances_and_keep_the_budget(bits: float) -> None:
    widths = allocate(torch.logspace(3, -6, 128, dtype=torch.float64), bits)
    assert bits - 0.1 < widths.float().mean() <= bits
    assert (widths.diff() <= 0).all()
    assert widths[0] == 8
    assert widths[-1] == 0


def test_more_bits_lose_less_and_a_row_weighs_what_it_says() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(400, 32) * torch.logspace(0.5, -2, 32) @ torch.randn(32, 32) + 3.0
    lost = []
    for bits in (2.0, 3.0, 4.0, 6.0):
        fit = SubspaceFit(1, 32)
        fit.add(numbers[None, :, None], numbers[None, :, None])
        basis = fit.fit(bits, rotary=lambda p: (p, p)).units[0,].keys
        rows = basis.pack(numbers)
        assert rows.shape == (400, basis.row_bytes)
        assert basis.row_bytes <= 32 * bits / 8 + 3
        back = basis.unpack(rows, slice(0, 32))
        lost.append(share_lost(numbers - numbers.mean(0), back - numbers.mean(0)))
    assert lost == sorted(lost, reverse=True)
    assert lost[0] < 0.5
    assert lost[-1] < 0.03


def test_a_token_ten_times_as_large_as_the_others_keeps_its_shape() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(500, 16)
    fit = SubspaceFit(1, 16)
    fit.add(numbers[None, :, None], numbers[None, :, None])
    basis = fit.fit(4.0, rotary=lambda p: (p, p)).units[0,].keys
    large = 10 * numbers[:50]
    assert share_lost(large, basis.unpack(basis.pack(large), slice(0, 16))) < 0.25


def test_too_few_tokens_are_refused_in_words() -> None:
    fit = SubspaceFit(2, 32)
    fit.add(*torch.randn(2, 2, 20, 2, 16))
    with pytest.raises(TooFewTokens, match="calibrate on more"):
        fit.fit(4.0, rotary=lambda p: (p, p))


def test_coordinates_always_fill_whole_bytes(subspace: Subspace) -> None:
    for unit in subspace.units.values():
        assert unit.row_bytes % 2 == 0
        for basis in (unit.keys, unit.values):
            assert all(n * bits % 8 == 0 for n, bits in zip(basis.counts, WIDTHS, strict=True))


# ---------------------------------------------------------------- in the cache
def test_hidden_states_over_packed_pages_are_close_to_exact(
    tiny: TinyText, subspace: Subspace
) -> None:
    kv = cache(storage=Format.SUBSPACE, subspace=subspace)
    running = opened(kv, LONG)
    tiny.prefill(kv, running, size=64)
    hidden = tiny.paged(kv, [(running, [5])])[0]
    assert share_lost(tiny.dense(LONG, [5])[-1], hidden[0]) < 0.05
    forms = kv.pool.records.form[running.table.matrix()]
    complete = running.table.complete()
    assert (forms[:, 0] == Format.INT8).all()  # attention sinks
    assert (forms[:, 1:complete] == Format.SUBSPACE).all()
    assert (forms[:, complete:] == Format.NATIVE).all()
    assert kv.check() == ()


def test_a_page_takes_bytes_for_its_tokens_alone(tiny: TinyText, subspace: Subspace) -> None:
    kv = cache(storage=Format.SUBSPACE, subspace=subspace)
    running = opened(kv, LONG)
    tiny.prefill(kv, running)
    fill = np.array([b.fill for b in running.table.blocks[1 : running.table.complete()]])
    assert (fill < PAGE_TOKENS).sum() > 0
    per_token = sum(u.row_bytes for u in subspace.units.values() if len(u.layers) == 2)
    tail = running.table.blocks[-1]
    sinks = LAYERS * Quantiser(Format.INT8, SHAPE).page_bytes
    open_bytes = SHAPE.native_bytes * LAYERS * (tail.fill < PAGE_TOKENS)
    assert kv.pool.arena.books.used_bytes == fill.sum() * per_token + open_bytes + sinks


def test_partners_leave_for_the_host_and_come_back_together(
    tiny: TinyText, subspace: Subspace
) -> None:
    kv = cache(storage=Format.SUBSPACE, subspace=subspace)
    running = opened(kv, LONG)
    tiny.prefill(kv, running)
    lower, upper = running.table.blocks[2].pages[:2]
    before = kv.pool.gather(np.array([upper]), running.table.rotation(slice(2, 3), tiny.rotary))
    assert kv.pool.moves.offload(np.array([upper])) == 2
    assert kv.pool.records.on_host[[lower, upper]].all()
    away = kv.pool.gather(np.array([upper]), running.table.rotation(slice(2, 3), tiny.rotary))
    assert kv.check() == ()
    assert kv.pool.moves.fetch(np.array([lower])) == 2
    assert not kv.pool.records.on_host[[lower, upper]].any()
    assert torch.equal(before[0], away[0])
    kv.pool.pin(np.array([upper]))
    assert kv.pool.moves.offload(np.array([lower])) == 0
    kv.pool.unpin(np.array([upper]))
    kv.close(running)
    assert kv.check() == ()


def test_a_partner_that_outlives_the_other_owns_the_slot(
    tiny: TinyText, subspace: Subspace
) -> None:
    kv = cache(storage=Format.SUBSPACE, subspace=subspace)
    running = kv.open(LONG, 4, salt="", write=False)
    assert running is not None
    tiny.prefill(kv, running)
    upper = running.table.blocks[2].pages[1:2].copy()
    rotation = running.table.rotation(slice(2, 3), tiny.rotary)
    before = kv.pool.gather(upper, rotation)
    kv.pool.pin(upper)
    kv.close(running)
    assert kv.check() == ()
    assert torch.equal(kv.pool.gather(upper, rotation)[0], before[0])
    kv.pool.unpin(upper)
    assert kv.pool.arena.books.used_bytes == 0
    assert kv.check() == ()


# ---------------------------------------------------------------- the file
def test_a_saved_subspace_packs_the_same(
    subspace: Subspace, tiny: TinyText, tmp_path: Path
) -> None:
    save(subspace, tmp_path, "w")
    found = load(tmp_path, "w", tiny.rotary, torch.device("cpu"), layers=LAYERS, channels=32)
    assert found.units.keys() == subspace.units.keys()
    numbers = torch.randn(7, 64)
    ours, theirs = (s.units[0, 1].keys.pack(numbers) for s in (subspace, found))
    assert torch.equal(ours, theirs)


def test_bases_of_other_weights_or_none_or_rubbish_are_refused_in_words(
    subspace: Subspace, tmp_path: Path
) -> None:
    def load_as(digest: str, channels: int = 32) -> Subspace:
        return load(
            tmp_path,
            digest,
            lambda p: (p, p),
            torch.device("cpu"),
            layers=LAYERS,
            channels=channels,
        )

    with pytest.raises(SubspaceError, match="no bases for this checkpoint; make them"):
        load_as("other")
    path = save(subspace, tmp_path, "w")
    with pytest.raises(SubspaceError, match="of other weights"):
        load_as("other")
    with pytest.raises(SubspaceError, match="of another shape"):
        load_as("w", channels=64)
    path.write_bytes(b"rubbish" * 20)
    with pytest.raises(SubspaceError, match="redline bases"):
        load_as("other")


def test_a_basis_weighs_its_tensors(subspace: Subspace) -> None:
    basis: Basis = subspace.units[0, 1].keys
    assert basis.nbytes == 2 * basis.vectors.numel() + 2 * 64 + 4 * sum(basis.counts)
    assert subspace.nbytes > basis.nbytes
