"""Raw media -> encoder input: the log-mel of an audio slice, the patches of a frame stack."""

import math

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from runtime.model.checkpoint import MediaFigures
from runtime.residents.port import Array

Grid = tuple[int, int, int]  # (t, h, w) in patches

TOKENS_PER_WINDOW = 13  # what three convolutions of stride 2 leave of 100 mel frames


class LogMel:
    """Whisper's log-mel spectrogram of one slice, scaled by the slice's own peak."""

    def __init__(self, figures: MediaFigures) -> None:
        self._figures = figures
        self._window = torch.hann_window(figures.n_fft)
        bank = mel_filter_bank(
            num_frequency_bins=1 + figures.n_fft // 2,
            num_mel_filters=figures.mel_bins,
            min_frequency=0.0,
            max_frequency=figures.sample_rate / 2,
            sampling_rate=figures.sample_rate,
            norm="slaney",
            mel_scale="slaney",
        )
        self._bank = torch.from_numpy(bank.T.astype(np.float32))

    def __call__(self, samples: Array) -> Tensor:
        """(samples,) float32 at `sample_rate` -> (mel_bins, mel_frames(samples))."""
        wave = np.zeros(mel_frames(len(samples), self._figures) * self._figures.hop, np.float32)
        wave[: len(samples)] = samples
        spectrum = torch.stft(
            torch.from_numpy(wave),
            self._figures.n_fft,
            self._figures.hop,
            window=self._window,
            return_complex=True,
        )
        power = (spectrum[:, :-1].abs() ** 2).contiguous()
        log = (self._bank @ power).clamp(min=1e-10).log10()
        return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0


def mel_frames(samples: int, figures: MediaFigures) -> int:
    """Frames of a slice, padded to whole hops and to at least one analysis window."""
    return math.ceil(max(samples, figures.n_fft) / figures.hop)


def audio_tokens(samples: int, figures: MediaFigures) -> int:
    """Tokens the audio encoder makes of a slice: 13 a second, and a part of it for the rest."""
    windows, rest = divmod(mel_frames(samples, figures), figures.mel_window)
    return TOKENS_PER_WINDOW * windows + math.ceil(rest / 8)


def frame_size(height: int, width: int, figures: MediaFigures) -> tuple[int, int]:
    """Height and width as the encoder sees them: multiples of `cell`, pixels inside the bounds."""
    cell = figures.cell
    rows, columns = max(1, round(height / cell)), max(1, round(width / cell))
    pixels = rows * columns * cell * cell
    if pixels > figures.max_pixels:
        shrink = math.sqrt(height * width / figures.max_pixels)
        rows = max(1, math.floor(height / shrink / cell))
        columns = max(1, math.floor(width / shrink / cell))
    elif pixels < figures.min_pixels:
        grow = math.sqrt(figures.min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / cell), math.ceil(width * grow / cell)
    return rows * cell, columns * cell


def grid_of(frames: int, height: int, width: int, figures: MediaFigures) -> Grid:
    """Patch grid of a frame stack; an odd last frame is doubled. A picture is one frame."""
    rows, columns = frame_size(height, width, figures)
    return (
        math.ceil(frames / figures.temporal_patch),
        rows // figures.patch,
        columns // figures.patch,
    )


def patches(frames: Array, figures: MediaFigures) -> tuple[Tensor, Grid]:
    """(frames, height, width, 3) uint8 -> (t * h * w, 3 * temporal_patch * patch ** 2) float32.

    The grid (t, h, w) comes with it. Patches stand in groups of merge x merge, in the order
    Qwen's processors write them.
    """
    count, height, width, _ = frames.shape
    t, h, w = grid_of(count, height, width, figures)
    size = h * figures.patch, w * figures.patch
    if size != (height, width):
        frames = np.stack([_resize(frame, *size) for frame in frames])
    short = t * figures.temporal_patch - count
    frames = np.concatenate([frames, np.repeat(frames[-1:], short, axis=0)])
    p, m, tp = figures.patch, figures.merge, figures.temporal_patch
    cells = frames.reshape(t, tp, h // m, m, p, w // m, m, p, 3)
    rows = cells.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(t * h * w, 3, -1)
    pixels = torch.from_numpy(rows).float().div_(255.0)
    mean, std = torch.tensor(figures.mean), torch.tensor(figures.std)
    return pixels.sub_(mean[:, None]).div_(std[:, None]).flatten(1), (t, h, w)


def _resize(frame: Array, height: int, width: int) -> Array:
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))
