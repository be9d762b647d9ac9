"""The Thinker's side of training: a batch of encoded media through the language model."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import load_balancing_loss_func

from tools.tiny.dialogues import SILENT, Batch
from tools.tiny.sharing import Sharing


@dataclass(frozen=True, eq=False)
class Heard:
    """`loss`: cross-entropy of answers; `balance`: of the experts' load; `right` (answers,) bool
    by token; `states` (B, T, H): what the Talker hears."""

    loss: Tensor
    balance: Any
    right: Tensor
    states: Tensor


def hear(model: Any, batch: Batch, sharing: Sharing | None) -> Heard:
    """One teacher-forced forward of the language model."""
    thinker = model.thinker
    language = thinker.model.language_model
    emb = language.embed_tokens(batch.ids)
    emb = emb.masked_scatter(batch.audio[..., None], batch.heard)
    emb = emb.masked_scatter(batch.visual[..., None], batch.seen)
    pictured = bool(batch.visual.any())
    out = language(
        inputs_embeds=emb,
        position_ids=batch.positions,
        visual_pos_masks=batch.visual if pictured else None,
        deepstack_visual_embeds=[batch.deep] if pictured else None,
        use_cache=False,
        output_hidden_states=True,
        output_router_logits=True,
        sharing=sharing,
    )
    asked = batch.labels[:, 1:] != SILENT
    logits = thinker.lm_head(out.last_hidden_state[:, :-1][asked])
    wanted = batch.labels[:, 1:][asked]
    text = language.config
    return Heard(
        loss=functional.cross_entropy(logits, wanted),
        balance=load_balancing_loss_func(
            out.router_logits, text.num_experts, text.num_experts_per_tok
        ),
        right=logits.argmax(-1) == wanted,
        states=out.hidden_states[model.config.talker_config.accept_hidden_layer],
    )
