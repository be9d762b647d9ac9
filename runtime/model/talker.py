"""The Talker: what the user said and the text to speak -> eight codec indices every 20 ms."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3OmniMoeForConditionalGeneration

from monitors.labels import Modality
from runtime.kv.tokens import CODE
from runtime.model.checkpoint import Checkpoint
from runtime.model.prompt import Prompt
from runtime.model.timeline import Positions, text_positions

END = None  # given to `TalkerStream.step` instead of a token once the text is over
RESERVED = 1024  # the last rows of the Talker's vocabulary: marks and voices, never codes


class UnknownVoice(ValueError):
    """The checkpoint has no such voice; the message lists those it has."""


class SpeechInput:
    """What the Talker reads, D wide: projections of text and of heard media, and the opening."""

    def __init__(self, model: Qwen3OmniMoeForConditionalGeneration) -> None:
        self._model: Any = model
        config: Any = model.config
        marks = [config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]
        self._begin, self.end, self.rest = self.text(torch.tensor([marks])).split(1, dim=1)

    def text(self, ids: Tensor) -> Tensor:
        """(B, t) text ids -> (B, t, D)."""
        words = self._model.thinker.get_input_embeddings()(ids.to(self._model.device))
        return self._model.talker.text_projection(words)

    def media(self, accept_hidden: Tensor) -> Tensor:
        """(t, H) states of heard media tokens in the Thinker -> (t, D)."""
        return self._model.talker.hidden_projection(accept_hidden)

    def codec(self, ids: list[int]) -> Tensor:
        """Marks of the codec's own vocabulary -> (1, t, D)."""
        return self._model.talker.get_input_embeddings()(
            torch.tensor([ids], device=self._model.device)
        )

    def speaker(self, voice: str) -> int:
        """The codec's mark of a voice. Raises `UnknownVoice`."""
        speakers: dict[str, int] = self._model.config.talker_config.speaker_id
        if voice.lower() not in speakers:
            known = ", ".join(sorted(speakers))
            raise UnknownVoice(f"there is no voice {voice!r}; choose one of {known}")
        return speakers[voice.lower()]

    def opening(self, speaker: int, turn_start: Tensor, first: Tensor) -> Tensor:
        """The nine places before speech: (B, 3) the turn's start, (B, 1) the first text token."""
        config = self._model.config.talker_config
        no_thought = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
        marks = self.codec([*no_thought, speaker, config.codec_pad_id, config.codec_bos_id])
        batch = len(first)
        filler = self.rest.expand(batch, 4, -1)
        spoken = torch.cat([filler, self._begin.expand(batch, 1, -1), self.text(first)], dim=1)
        return torch.cat([self.text(turn_start), spoken + marks], dim=1)


class TalkerStream:
    """Speech of one answer (S3.1). One text token is eaten per frame, one ahead of the sound.

    Use: `codes = prefill(prompt, accept_hidden, first_token)`, then `codes = step(token)` for
    every further text token and `step(END)` from then on, until codes is None. The end token of
    the text is never given: `END` stands for it. `reason` then says why speech ended: "stop"
    (the Talker ended it) or "length" (`max_frames` came first). Raises `UnknownVoice`.
    """

    def __init__(self, checkpoint: Checkpoint, voice: str, *, max_frames: int) -> None:
        self.frames = 0
        self.reason: Literal["stop", "length"] | None = None
        self._talker: Any = checkpoint.model.talker
        self._config: Any = checkpoint.config.talker_config
        self._input = SpeechInput(checkpoint.model)
        self._speaker = self._input.speaker(voice)
        self._max_frames = max_frames
        self._not_codes = _not_codes(self._config).to(checkpoint.device)
        self._cache: Any = DynamicCache(config=self._config.text_config)
        self._position = 0
        self._text_over = False
        self._hidden: Tensor  # (1, 1, D) after the last place
        self._spoken: Tensor  # (1, 1, D) the last frame's codes, embedded

    @torch.inference_mode()
    def prefill(self, prompt: Prompt, accept_hidden: Tensor, first_token: int) -> Tensor | None:
        """Hear the user turns and the first text token; the first frame's codes (8,).

        `accept_hidden` (n, H) of all prompt tokens, as the Thinker gave it when they were
        prefilled; only rows of media in user turns are read. None: it ended without a sound.
        """
        turn_start = torch.from_numpy(prompt.ids[None, -3:])
        opening = self._input.opening(self._speaker, turn_start, torch.tensor([[first_token]]))
        heard, positions = self._heard(prompt, accept_hidden)
        start = int(positions.max(initial=-1)) + 1
        self._position = start + opening.shape[1]
        self._forward(
            torch.cat([heard, opening], dim=1),
            np.concatenate([positions, text_positions(start, opening.shape[1])], axis=1),
        )
        return self._frame()

    @torch.inference_mode()
    def step(self, token: int | None) -> Tensor | None:
        """Eat one text token, or `END`; the next frame's codes (8,), None when speech is over."""
        if self.reason is not None:
            raise RuntimeError(f"this speech is over ({self.reason}); open a new stream")
        self._forward(self._spoken + self._text(token), text_positions(self._position, 1))
        self._position += 1
        return self._frame()

    @property
    def nbytes(self) -> int:
        """Bytes of the cache it holds."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self._cache.layers)

    def _heard(self, prompt: Prompt, accept_hidden: Tensor) -> tuple[Tensor, Positions]:
        """User turns moved together: embeddings (1, u, D) and positions (3, u) from 0 on."""
        heard = torch.from_numpy(np.flatnonzero(prompt.user))
        parts = self._input.text(torch.from_numpy(prompt.ids[prompt.user])[None])
        media = torch.from_numpy(prompt.modality[prompt.user] != CODE[Modality.TEXT])
        if media.any():
            parts = parts.clone()
            parts[0, media] = self._input.media(accept_hidden[heard[media]])
        return parts, closed_up(prompt)

    def _text(self, token: int | None) -> Tensor:
        if token is not None:
            if self._text_over:
                raise RuntimeError("the text was ended; no token may follow")
            return self._input.text(torch.tensor([[token]]))
        mark = self._input.rest if self._text_over else self._input.end
        self._text_over = True
        return mark

    def _forward(self, emb: Tensor, positions: Positions) -> None:
        out = self._talker.model(
            inputs_embeds=emb,
            position_ids=torch.from_numpy(positions)[:, None].to(emb.device),
            cache=self._cache,
            use_cache=True,
        )
        self._hidden = out.last_hidden_state[:, -1:]

    def _frame(self) -> Tensor | None:
        """The codes of the frame that the last place leads to."""
        logits = self._talker.codec_head(self._hidden[0, -1])
        first = logits.masked_fill(self._not_codes, float("-inf")).argmax()
        if first == self._config.codec_eos_token_id:
            self.reason = "stop"
        elif self.frames == self._max_frames:
            self.reason = "length"
        if self.reason is not None:
            return None
        self.frames += 1
        codes, self._spoken = self._residual(first)
        return codes

    def _residual(self, first: Tensor) -> tuple[Tensor, Tensor]:
        """The frame's other codes, each from those before it; all of them, and their sum."""
        predictor = self._talker.code_predictor
        emb = self._talker.get_input_embeddings()(first)[None, None]
        codes, spoken = [first], emb
        cache = DynamicCache(config=predictor.config)
        read = torch.cat([self._hidden, emb], dim=1)
        for head, embed in zip(predictor.lm_head, predictor.model.codec_embedding, strict=True):
            out = predictor.model(inputs_embeds=read, cache=cache, use_cache=True)
            codes.append(head(out.last_hidden_state[0, -1]).argmax())
            read = embed(codes[-1])[None, None]
            spoken = spoken + read
        return torch.stack(codes), spoken


def closed_up(prompt: Prompt) -> Positions:
    """Positions of the user turns as if nothing stood between them, (3, u) from 0 on."""
    edges = np.flatnonzero(np.diff(prompt.user, prepend=False, append=False))
    runs: list[Positions] = [np.zeros((3, 0), np.int64)]
    start = 0
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        run = prompt.positions[:, first:stop]
        runs.append(run - run[0, 0] + start)
        start = int(runs[-1].max()) + 1
    return np.concatenate(runs, axis=1)


def _not_codes(config: Any) -> Tensor:
    """(V,) bool: the reserved rows of the Talker's vocabulary, but for the end of speech."""
    size = config.text_config.vocab_size
    mask = torch.arange(size) >= size - RESERVED
    mask[config.codec_eos_token_id] = False
    return mask
