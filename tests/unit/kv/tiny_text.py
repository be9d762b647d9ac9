"""A language model of four layers with random weights, and a cache that fits it."""

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import (
    Qwen3OmniMoeTextConfig,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeThinkerTextModel,
)

from monitors.labels import Modality
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import CacheSettings
from runtime.kv.collect import unrotated
from runtime.kv.fitting import SubspaceFit
from runtime.kv.formats import PageShape
from runtime.kv.sequence import Sequence
from runtime.kv.subspace import Subspace
from runtime.kv.tokens import CODE, MediaSpan, PromptTokens
from runtime.model.attention import NAME, register

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
LAYERS, HIDDEN, VOCABULARY = 4, 32, 64
SHAPE = PageShape(kv_heads=2, head_dim=16, dtype=torch.float32)
SETTINGS = CacheSettings(
    pool_bytes=4_000_000, layers=LAYERS, shape=SHAPE, weights_digest="w", observe_every=10**9
)


def cache(**changes: object) -> KvCache:
    return KvCache(replace(SETTINGS, **changes))


def prompt(
    *runs: tuple[Modality, int], seed: int = 0, digest: str = "clip", start: int = 0
) -> PromptTokens:
    """Runs of `(modality, tokens)`: text gets random ids, each media run is a slice of `digest`."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.full(n, CODE[m], np.int8) for m, n in runs])
    ids = np.where(codes == CODE[Modality.TEXT], rng.integers(4, VOCABULARY, len(codes)), codes)
    stops = np.cumsum([n for _, n in runs])
    media = tuple(
        MediaSpan(int(stop) - n, int(stop), f"{digest}:{i}")
        for i, ((m, n), stop) in enumerate(zip(runs, stops, strict=True))
        if m is not Modality.TEXT
    )
    positions = np.tile(np.arange(start, start + len(codes)), (3, 1))
    return PromptTokens(ids.astype(np.int64), codes, positions, media)


class TinyText:
    """The model, run over dense caches or over pages, in eager agreement or not."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(7)
        rope = {
            "rope_theta": 1e6, "rope_type": "default", "mrope_section": [4, 2, 2],
            "interleaved": True, "mrope_interleaved": True,
        }  # fmt: skip
        config = Qwen3OmniMoeTextConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64,
            num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
            rope_parameters=rope, pad_token_id=0, initializer_range=0.3,
        )  # fmt: skip
        self.model = Qwen3OmniMoeThinkerTextModel(config).eval().requires_grad_(False)
        register()

    def dense(self, tokens: PromptTokens, answer: SequenceOf[int] = ()) -> Tensor:
        """Hidden states `(n, hidden)` of prompt and answer in one pass over a dense cache."""
        self.model.set_attn_implementation("sdpa")
        ids = np.concatenate([tokens.ids, np.array(answer, np.int64)])
        tail = np.arange(len(answer)) + tokens.positions.max() + 1
        positions = np.concatenate([tokens.positions, np.tile(tail, (3, 1))], axis=1)
        out = self.model(
            input_ids=torch.from_numpy(ids)[None],
            position_ids=torch.from_numpy(positions)[:, None],
            cache=DynamicCache(config=self.model.config),
            use_cache=True,
        )
        return out.last_hidden_state[0]

    def paged(
        self,
        kv: KvCache,
        work: SequenceOf[tuple[Sequence, SequenceOf[int]]],
        *,
        observed: bool = False,
    ) -> list[Tensor]:
        """One packed forward: each sequence grows by these ids; hidden states of each."""
        self.model.set_attn_implementation(NAME)
        positions = [self._positions(s, len(ids)) for s, ids in work]
        spans = [kv.grow(s, len(ids)) for s, ids in work]
        step = kv.step(spans, observed=observed)
        out = self.model(
            input_ids=torch.tensor([i for _, ids in work for i in ids])[None],
            position_ids=torch.from_numpy(np.concatenate(positions, axis=1))[:, None],
            use_cache=False,
            paged=step,
        )
        parts = list(out.last_hidden_state[0].split([len(ids) for _, ids in work]))
        for index, ((sequence, _), part) in enumerate(zip(work, parts, strict=True)):
            kv.absorb(sequence, part, step.observations[index])
        return parts

    def prefill(
        self, kv: KvCache, sequence: Sequence, size: int = 256, *, observed: bool = False
    ) -> Tensor:
        """The rest of the prompt in slices of `size`; hidden states of what was computed."""
        parts, ids = [], sequence.tokens.ids
        while not sequence.prefilled:
            at = sequence.table.length
            parts += self.paged(kv, [(sequence, ids[at : at + size].tolist())], observed=observed)
        return torch.cat(parts)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own cosine and sine `(n, head_dim)` of positions `(3, n)`."""
        cos, sin = self.model.rotary_emb(torch.zeros(1), positions[:, None])
        return cos[0], sin[0]

    def subspace(self, bits: float, solo: SequenceOf[int] = ()) -> Subspace:
        """Bases for this model, learned on prompts of their own."""
        fit = SubspaceFit(LAYERS, SHAPE.channels, solo)
        for seed in range(100, 108):
            kv, tokens = cache(), prompt((T, 40), (V, 60), (A, 40), (T, 40), seed=seed)
            running = opened(kv, tokens)
            self.prefill(kv, running)
            fit.add(*unrotated(kv, running, self.rotary))
        return fit.fit(bits, self.rotary)

    def _positions(self, sequence: Sequence, count: int) -> np.ndarray:
        at, prompt = sequence.table.length, sequence.tokens.positions
        inside = prompt[:, at : at + count]
        answered = max(0, at - prompt.shape[1])
        beyond = np.arange(count - inside.shape[1]) + answered + prompt.max() + 1
        return np.concatenate([inside, np.tile(beyond, (3, 1))], axis=1)


def opened(kv: KvCache, tokens: PromptTokens, max_new: int = 16, **options: object) -> Sequence:
    """A sequence that the pool has room for."""
    found = kv.open(tokens, max_new, **({"salt": "", "write": True} | options))
    assert found is not None
    return found
