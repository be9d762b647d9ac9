"""The Thinker: text and media slices -> embeddings -> hidden states -> the next text token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.model.checkpoint import Checkpoint
from runtime.model.features import LogMel, audio_tokens, patches
from runtime.model.prompt import Prompt, Segment
from runtime.residents.port import Array, AudioPart

ATTENTION = "redline_paged"  # the name runtime/model/attention.py registers


@dataclass(frozen=True, eq=False)
class SegmentEmbedding:
    """Language-model input of t tokens, v of them pictures.

    `emb` (1, t, H); `visual` (1, t) bool; `deepstack` one (v, H) for each of the first layers
    that pictures are added to again, none where v is 0.
    """

    emb: Tensor
    visual: Tensor
    deepstack: tuple[Tensor, ...]

    def cut(self, start: int, stop: int) -> "SegmentEmbedding":
        """Tokens `[start, stop)`: for prefill in parts, or behind a prefix hit."""
        before = int(self.visual[0, :start].sum())
        inside = int(self.visual[0, start:stop].sum())
        rows = tuple(level[before : before + inside] for level in self.deepstack if inside)
        return SegmentEmbedding(self.emb[:, start:stop], self.visual[:, start:stop], rows)

    @property
    def nbytes(self) -> int:
        return self.emb.nbytes + self.visual.nbytes + sum(level.nbytes for level in self.deepstack)


def pack(pieces: Sequence[SegmentEmbedding]) -> SegmentEmbedding:
    """Pieces, of one request or of many, behind each other as one ragged batch (1, T, H)."""
    levels = [piece.deepstack for piece in pieces if piece.deepstack]
    return SegmentEmbedding(
        emb=torch.cat([piece.emb for piece in pieces], dim=1),
        visual=torch.cat([piece.visual for piece in pieces], dim=1),
        deepstack=tuple(torch.cat(level) for level in zip(*levels, strict=True)),
    )


@dataclass(frozen=True, eq=False)
class ThinkerOutput:
    """Both (T, H): for the next token, and what the Talker hears of media tokens."""

    last_hidden: Tensor
    accept_hidden: Tensor


class Thinker:
    """The checkpoint's Thinker, free of any request's state.

    `attention` becomes the attention of the checkpoint's language model; it must be registered
    with transformers before the first forward.
    """

    def __init__(self, checkpoint: Checkpoint, attention: str = ATTENTION) -> None:
        thinker = checkpoint.model.thinker
        self._encoders = thinker.model
        self._language = thinker.model.language_model
        self._head = thinker.lm_head
        self._language.config._attn_implementation = attention
        self._accept_layer: int = checkpoint.config.talker_config.accept_hidden_layer
        self._figures = checkpoint.figures
        self._log_mel = LogMel(checkpoint.figures)
        self.device = checkpoint.device
        self.eos_id: int = checkpoint.config.im_end_token_id
        self.layers: int = self._language.config.num_hidden_layers
        self._rotated_as = torch.zeros(1, device=self.device)  # float32, where the model's is less
        self._unspeakable = _unspeakable(checkpoint).to(self.device)

    @torch.inference_mode()
    def embed(self, prompt: Prompt, segment: Segment) -> SegmentEmbedding:
        """One segment: its token embeddings, or what the encoder makes of its media slice."""
        if segment.media is None:
            return self.embed_tokens(prompt.ids[segment.start : segment.stop])
        if isinstance(segment.part, AudioPart):
            return self._plain(self._encode_audio(segment.media, segment.part.start_ms > 0))
        return self._encode_pictures(segment.media)

    @torch.inference_mode()
    def embed_tokens(self, ids: Sequence[int] | Array) -> SegmentEmbedding:
        """(t,) text ids, of one request or one each of many -> t embeddings."""
        tokens = torch.as_tensor(ids, dtype=torch.long, device=self.device)
        return self._plain(self._language.embed_tokens(tokens))

    @torch.inference_mode()
    def forward(
        self,
        emb: Tensor,
        positions: Tensor,
        visual_mask: Tensor,
        deepstack: Sequence[Tensor],
        **attention: Any,
    ) -> ThinkerOutput:
        """One forward over T packed tokens: `emb` (1, T, H), `positions` (3, 1, T).

        `attention` reaches the attention function (`paged=step`), which alone says what each
        token sees and where keys and values are kept.
        """
        out = self._language(
            inputs_embeds=emb,
            position_ids=positions.to(self.device),
            visual_pos_masks=visual_mask if deepstack else None,
            deepstack_visual_embeds=list(deepstack) or None,
            use_cache=False,
            output_hidden_states=self._accept_layer,
            **attention,
        )
        return ThinkerOutput(
            last_hidden=out.last_hidden_state[0],
            accept_hidden=out.hidden_states[self._accept_layer][0],
        )

    @torch.inference_mode()
    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine `(n, head_dim)` by which keys at `positions` `(3, n)` are rotated."""
        cos, sin = self._language.rotary_emb(self._rotated_as, positions[:, None])
        return cos[0], sin[0]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(T, H) -> (T, V). Markers, media pads and unused rows are -inf; the end is allowed."""
        return self._head(hidden).masked_fill(self._unspeakable, float("-inf"))

    def next_tokens(self, hidden: Tensor) -> list[int]:
        """The greedy choice for each of (T, H); `eos_id` ends the text."""
        return self.logits(hidden).argmax(-1).tolist()

    def _encode_audio(self, samples: Array, later: bool) -> Tensor:
        """`later`: the slice stands behind a full second, beside which the tower would pad it. It
        is given one, so that a short last slice is encoded as it is in the whole (S2.1)."""
        mel = self._log_mel(samples).to(self.device)
        frames, second = mel.shape[1], self._figures.mel_window
        lengths = [frames]
        if later and frames < second:
            mel, lengths = torch.cat([mel, mel.new_zeros(len(mel), second)], 1), [frames, second]
        lens = torch.tensor(lengths, device=self.device)
        tokens = audio_tokens(len(samples), self._figures)
        return self._encoders.audio_tower(mel, feature_lens=lens).last_hidden_state[:tokens]

    def _encode_pictures(self, frames: Array) -> SegmentEmbedding:
        visual = self._encoders.visual
        pixels, grid = patches(frames, self._figures)
        out = visual(
            pixels.to(self.device, visual.dtype),
            grid_thw=torch.tensor([grid], device=self.device),
        )
        emb = out.pooler_output
        mask = torch.ones(1, len(emb), dtype=torch.bool, device=self.device)
        return SegmentEmbedding(emb[None], mask, tuple(out.deepstack_features))

    def _plain(self, emb: Tensor) -> SegmentEmbedding:
        mask = torch.zeros(1, len(emb), dtype=torch.bool, device=self.device)
        return SegmentEmbedding(emb[None], mask, ())


def _unspeakable(checkpoint: Checkpoint) -> Tensor:
    """(V,) bool: ids that are no text: special tokens but the end, and rows without a token."""
    tokenizer: Any = checkpoint.tokenizer
    size = checkpoint.config.thinker_config.text_config.vocab_size
    mask = torch.arange(size) >= len(tokenizer)
    for token_id, token in tokenizer.added_tokens_decoder.items():
        mask[token_id] = token.special
    mask[checkpoint.config.im_end_token_id] = False
    return mask
