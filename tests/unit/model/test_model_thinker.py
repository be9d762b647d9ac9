from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AttentionInterface, DynamicCache

from runtime.model.checkpoint import Checkpoint
from runtime.model.features import LogMel, patches
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.model.thinker import Thinker, pack
from tests.unit.model.dense import DenseThinker, Media, system, user

CLOSE = 2e-5


def _prompt(processor: Processor, seed: int = 0, question: str = "What is it?") -> Prompt:
    media = Media(seed)
    return processor.prompt([system(), user(*media.clip(4), media.image(), question)], media.arrays)


def test_slices_of_sound_encode_as_the_whole_does(loaded: Checkpoint, dense: DenseThinker) -> None:
    media = Media()
    slices = [
        media.arrays[media.audio(1000 * s, n).index] for s, n in enumerate([16_000] * 3 + [4000])
    ]
    mels = [LogMel(loaded.figures)(samples) for samples in slices]
    with torch.inference_mode():
        tower = loaded.model.thinker.model.audio_tower
        whole = torch.cat(mels, dim=1)
        expected = tower(whole, feature_lens=torch.tensor([whole.shape[1]])).last_hidden_state
    got = torch.cat([dense.thinker._encode_audio(s, k > 0) for k, s in enumerate(slices)])
    assert (got - expected).abs().max() < CLOSE


def test_slices_of_video_encode_as_the_whole_does(loaded: Checkpoint, dense: DenseThinker) -> None:
    media = Media()
    clips = [media.arrays[media.video(start).index] for start in (0, 2000)]
    pixels, grid = patches(np.concatenate(clips), loaded.figures)
    with torch.inference_mode():
        expected = loaded.model.thinker.model.visual(pixels, grid_thw=torch.tensor([grid]))
    got = pack([dense.thinker._encode_pictures(frames) for frames in clips])
    assert (got.emb[0] - expected.pooler_output).abs().max() < CLOSE
    for ours, theirs in zip(got.deepstack, expected.deepstack_features, strict=True):
        assert (ours - theirs).abs().max() < CLOSE


@pytest.mark.parametrize("cuts", [[50, 100, 130], [1, 2, 3, 40, 77], [60]])
def test_prefill_in_parts_equals_one_go(
    processor: Processor, dense: DenseThinker, cuts: list[int]
) -> None:
    prompt = _prompt(processor)
    whole, _ = dense.prefill(prompt)
    batch, cache = dense.embed(prompt), DynamicCache()
    parts = [
        dense.forward(batch.cut(start, stop), prompt.positions[:, start:stop], cache)
        for start, stop in pairwise([0, *cuts, len(prompt)])
    ]
    for name in ("last_hidden", "accept_hidden"):
        got = torch.cat([getattr(part, name) for part in parts])
        assert (got - getattr(whole, name)).abs().max() < 1e-4


def _spans(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, paged: Any, **kwargs: Any
) -> tuple[Any, None]:
    """Causal attention inside each `(start, stop)` of `paged`, none across."""
    groups = module.num_key_value_groups
    out = [
        functional.scaled_dot_product_attention(
            query[:, :, a:b],
            key[:, :, a:b].repeat_interleave(groups, 1),
            value[:, :, a:b].repeat_interleave(groups, 1),
            is_causal=True,
            scale=kwargs["scaling"],
        )
        for a, b in paged
    ]
    return torch.cat(out, dim=2).transpose(1, 2), None


def test_packed_requests_equal_single_ones(
    loaded: Checkpoint, processor: Processor, dense: DenseThinker
) -> None:
    prompts = [_prompt(processor, seed, "Why? " * (seed + 1)) for seed in range(3)]
    text_only = processor.prompt([user("Hello there.")], [])
    prompts.insert(1, text_only)
    single = [dense.prefill(prompt)[0] for prompt in prompts]
    batch = pack([dense.embed(prompt) for prompt in prompts])
    positions = np.concatenate([prompt.positions for prompt in prompts], axis=1)
    edges = np.cumsum([0, *map(len, prompts)]).tolist()
    AttentionInterface.register("test_spans", _spans)
    try:
        packed = Thinker(loaded, attention="test_spans").forward(
            batch.emb, torch.from_numpy(positions)[:, None], batch.visual, batch.deepstack,
            paged=list(pairwise(edges)),
        )  # fmt: skip
    finally:
        Thinker(loaded, attention="sdpa")  # the attention is set on the shared model
    for name in ("last_hidden", "accept_hidden"):
        expected = torch.cat([getattr(out, name) for out in single])
        assert (getattr(packed, name) - expected).abs().max() < 1e-4


def test_text_alone_needs_no_pictures(processor: Processor, dense: DenseThinker) -> None:
    batch = dense.embed(processor.prompt([user("Hello.")], []))
    assert batch.deepstack == ()
    assert not batch.visual.any()
    assert batch.nbytes == batch.emb.nbytes + batch.visual.nbytes


def test_no_marker_is_ever_written(trained: Checkpoint) -> None:
    hidden = torch.randn(5000, 128, generator=torch.Generator().manual_seed(0)) * 5
    tokenizer: Any = trained.tokenizer
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    written = set(Thinker(trained).next_tokens(hidden))
    assert trained.config.im_end_token_id in written  # the end is no marker: it may come
    assert not (written & special) - {trained.config.im_end_token_id}
    assert max(written) < len(tokenizer)


def test_media_change_the_text(processor: Processor, dense: DenseThinker) -> None:
    texts = [dense.text(_prompt(processor, seed), 6)[0] for seed in range(4)]
    assert len({tuple(text) for text in texts}) > 1
