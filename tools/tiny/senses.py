"""The encoders' warm-up: name the digit of a second, the colour and shape of its pictures.

Two linear probes read the encoders' mean output and are thrown away afterwards. Without it the
language model has nothing to attend to for hundreds of steps.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.model.checkpoint import MediaFigures
from runtime.model.features import LogMel, patches
from runtime.quality.scenes import AUDIO_HZ, FPS, Size, draw_scene, pictures, soundtrack
from runtime.quality.words import COLOURS, DIGITS, SHAPES

SECONDS = 32  # in a batch
SIZES: tuple[Size, ...] = ((80, 80), (80, 120), (120, 160), (160, 160))


class Senses(nn.Module):
    """Audio tower, vision tower and the probes on both."""

    def __init__(self, model: Any, figures: MediaFigures) -> None:
        super().__init__()
        self.audio, self.visual = model.thinker.model.audio_tower, model.thinker.model.visual
        width = model.config.thinker_config.text_config.hidden_size
        self.hears = nn.Linear(width, len(DIGITS))
        self.sees = nn.Linear(width, len(COLOURS) + len(SHAPES))
        self._figures, self._log_mel = figures, LogMel(figures)

    def losses(self, size: Size, rng: np.random.Generator) -> Iterator[Tensor]:
        """Cross-entropy of digits, colours and shapes of one fresh batch."""
        scene = draw_scene(SECONDS, rng)
        seconds = soundtrack(scene, rng).reshape(SECONDS, AUDIO_HZ)
        mels = [self._log_mel(second) for second in seconds]
        lengths = torch.tensor([mel.shape[1] for mel in mels])
        heard = self.audio(torch.cat(mels, dim=1), feature_lens=lengths).last_hidden_state
        heard = self.hears(heard.view(SECONDS, -1, heard.shape[-1]).mean(1))
        yield functional.cross_entropy(heard, torch.tensor(scene.digits))
        frames = pictures(scene, size, rng).reshape(SECONDS, FPS, *size, 3)
        flat, grids = zip(*(patches(pair, self._figures) for pair in frames), strict=True)
        seen = self.visual(torch.cat(flat), grid_thw=torch.tensor(grids)).pooler_output
        told = self.sees(seen).view(SECONDS, -1, len(COLOURS) + len(SHAPES)).logsumexp(1)
        yield functional.cross_entropy(told[:, : len(COLOURS)], torch.tensor(scene.colours))
        yield functional.cross_entropy(told[:, len(COLOURS) :], torch.tensor(scene.shapes))
