"""Synthetic media, and the Thinker over transformers' own dense cache: the reference path."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from runtime.model.checkpoint import Checkpoint
from runtime.model.prompt import Prompt
from runtime.model.thinker import SegmentEmbedding, Thinker, ThinkerOutput, pack
from runtime.residents.port import Array, AudioPart, ImagePart, Part, TextPart, Turn, VideoPart

SIZE = (120, 160)  # 3 x 4 tokens a temporal grid
APART = TextPart(text="")  # keeps two media items from being one clip


@dataclass
class Media:
    """Makes parts and collects the arrays they point at."""

    seed: int = 0
    arrays: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def audio(self, start_ms: int = 0, samples: int = 16_000) -> AudioPart:
        time = np.arange(samples) / 16_000
        noise = 0.01 * self._rng.standard_normal(samples)
        index = self._add((0.3 * np.sin(2 * np.pi * 440 * time) + noise).astype(np.float32))
        return AudioPart(index=index, start_ms=start_ms, digest=f"audio-{index}")

    def video(self, start_ms: int = 0, frames: int = 4, size: tuple[int, int] = SIZE) -> VideoPart:
        index = self._add(self._rng.integers(0, 256, (frames, *size, 3), dtype=np.uint8))
        return VideoPart(
            index=index,
            start_ms=start_ms,
            pts_ms=tuple(start_ms + 500 * frame for frame in range(frames)),
            grid_ms=500.0,
            digest=f"video-{index}",
            key_frame=start_ms == 0,
        )

    def image(self, size: tuple[int, int] = SIZE) -> ImagePart:
        index = self._add(self._rng.integers(0, 256, (*size, 3), dtype=np.uint8))
        return ImagePart(index=index, digest=f"image-{index}")

    def clip(self, seconds: int = 4) -> list[Part]:
        """Video and its sound, slices in time order."""
        parts: list[Part] = []
        for start in range(0, 1000 * seconds, 2000):
            parts += [self.video(start), self.audio(start), self.audio(start + 1000)]
        return parts

    def _add(self, array: Array) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


def system(text: str = "You are a helpful assistant.") -> Turn:
    return Turn(role="system", parts=(TextPart(text=text),))


def user(*parts: Part | str) -> Turn:
    return Turn(role="user", parts=tuple(_part(part) for part in parts))


def assistant(text: str) -> Turn:
    return Turn(role="assistant", parts=(TextPart(text=text),))


def _part(part: Part | str) -> Part:
    return TextPart(text=part) if isinstance(part, str) else part


class DenseThinker:
    """Greedy text over a `DynamicCache`: what the paged engine must equal."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.thinker = Thinker(checkpoint, attention="sdpa")

    def embed(self, prompt: Prompt) -> SegmentEmbedding:
        return pack([self.thinker.embed(prompt, segment) for segment in prompt.segments])

    def forward(self, batch: SegmentEmbedding, positions: Array | Tensor, cache: Any) -> Any:
        at = torch.as_tensor(positions).reshape(3, 1, -1)
        return self.thinker.forward(batch.emb, at, batch.visual, batch.deepstack, cache=cache)

    def prefill(self, prompt: Prompt) -> tuple[ThinkerOutput, Any]:
        cache = DynamicCache()
        return self.forward(self.embed(prompt), prompt.positions, cache), cache

    def text(self, prompt: Prompt, max_tokens: int) -> tuple[list[int], Tensor]:
        """Generated ids (the end included, where it came) and the prompt's accept states."""
        out, cache = self.prefill(prompt)
        tokens = self.thinker.next_tokens(out.last_hidden[-1:])
        while tokens[-1] != self.thinker.eos_id and len(tokens) < max_tokens:
            position = prompt.next_position + len(tokens) - 1
            step = self.thinker.embed_tokens(tokens[-1:])
            last = self.forward(step, np.full((3, 1), position), cache)
            tokens += self.thinker.next_tokens(last.last_hidden)
        return tokens, out.accept_hidden
