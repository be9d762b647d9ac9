"""The bench drives the cache as the engine does, and agrees with a pass that has no cache."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bench import smollm, text
from bench.models import TextModel, smol, tiny
from bench.paged_text import PagedText, as_modalities, held_out, pool_bytes, prompt, settings
from monitors.contract import KvRung
from monitors.labels import Modality
from runtime.kv.tokens import CODE

CLOSE = 2e-3  # float32 sums in another order, over 30 layers
CONTEXT, TAIL = 300, 20


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def agrees_with_a_dense_pass(model: TextModel) -> None:
    ids = np.random.default_rng(0).integers(100, 400, CONTEXT + TAIL)
    run = PagedText(model, settings(model, pool_bytes(model, CONTEXT + TAIL)))
    sequence = run.open(prompt(ids[:CONTEXT]), TAIL)
    nats = run.dictate(sequence, run.prefill(sequence), ids[CONTEXT:], size=7)
    dense = -model.logits(model.dense(torch.from_numpy(ids))).double().log_softmax(-1)
    expected = dense[torch.arange(CONTEXT - 1, len(ids) - 1), torch.from_numpy(ids[CONTEXT:])]
    finite = np.isfinite(nats)
    assert finite.any()
    np.testing.assert_allclose(nats[finite], expected.numpy()[finite], atol=CLOSE)
    assert run.kv.check() == ()


def test_dictating_over_pages_costs_what_one_dense_pass_says() -> None:
    agrees_with_a_dense_pass(tiny())


@pytest.mark.slow
def test_the_pretrained_weights_agree_too_and_know_english() -> None:
    try:
        smollm.path()
    except smollm.WeightsMissing as err:
        pytest.skip(str(err))
    agrees_with_a_dense_pass(smol())
    model, tokenizer = smollm.load()
    ids = torch.tensor(tokenizer.encode("The capital of France is").ids)
    following = int(model(ids[None], use_cache=False).logits[0, -1].argmax())
    assert tokenizer.decode([following]).strip() == "Paris"


def test_greedy_decoding_grows_the_sequence_in_any_format() -> None:
    model = tiny()
    (ids,) = held_out(model, 1, 64)
    for rung in KvRung:
        run = PagedText(model, settings(model, pool_bytes(model, 128)))
        run.kv.set_kv(rung)
        sequence = run.open(prompt(ids), 8)
        said = run.decode(sequence, run.prefill(sequence), 8)
        assert len(said) == 8
        assert sequence.table.length == 64 + 8


def test_the_held_out_text_is_the_pinned_one() -> None:
    assert len(text.prose().split()) > 20_000


def test_a_changed_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_paragraphs", lambda: iter(["Other words."]))
    with pytest.raises(text.TextChanged, match="constraints"):
        text.prose.__wrapped__()


def test_pretended_modalities_start_and_end_with_text() -> None:
    codes = as_modalities(100)
    assert (codes[0], codes[-1]) == (CODE[Modality.TEXT], CODE[Modality.TEXT])
    assert set(codes.tolist()) == {
        CODE[kind] for kind in (Modality.TEXT, Modality.AUDIO, Modality.VIDEO)
    }
