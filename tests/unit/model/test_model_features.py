from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2VLImageProcessorPil, WhisperFeatureExtractor

from runtime.model.checkpoint import Checkpoint, MediaFigures
from runtime.model.features import LogMel, audio_tokens, frame_size, grid_of, patches


@pytest.fixture
def figures(loaded: Checkpoint) -> MediaFigures:
    return loaded.figures


def _noise(samples: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(samples).astype(np.float32) * 0.1


def test_log_mel_of_a_slice_is_whispers(figures: MediaFigures) -> None:
    whisper = WhisperFeatureExtractor(feature_size=128, sampling_rate=16_000)
    for samples in (16_000, 8_000):
        ours = LogMel(figures)(_noise(samples))
        theirs = whisper(
            _noise(samples), sampling_rate=16_000, padding=True, truncation=False,
            return_tensors="pt",
        ).input_features[0]  # fmt: skip
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() < 1e-4


@given(st.integers(1, 40_000))
@settings(max_examples=60, deadline=None)
def test_token_count_of_a_slice_is_what_the_encoder_makes(loaded: Checkpoint, samples: int) -> None:
    mel = LogMel(loaded.figures)(np.zeros(samples, np.float32))
    with torch.inference_mode():
        out = loaded.model.thinker.model.audio_tower(mel, feature_lens=torch.tensor([mel.shape[1]]))
    assert len(out.last_hidden_state) == audio_tokens(samples, loaded.figures)


def test_a_second_of_sound_is_thirteen_tokens(figures: MediaFigures) -> None:
    assert audio_tokens(16_000, figures) == 13


@pytest.mark.parametrize(
    ("size", "tokens"), [((720, 1280), 288), ((360, 640), 288), ((240, 320), 96), ((160, 160), 32)]
)
def test_two_seconds_of_video_at_the_known_sizes(
    figures: MediaFigures, size: tuple[int, int], tokens: int
) -> None:
    t, h, w = grid_of(4, *size, figures)
    assert t * h * w // figures.merge**2 == tokens


def test_the_floor_of_the_ladder_is_not_scaled_back_up(figures: MediaFigures) -> None:
    assert frame_size(160, 160, figures) == (160, 160)


@given(st.integers(1, 4000), st.integers(1, 4000))
@settings(max_examples=200, deadline=None)
def test_frames_fit_the_bounds_in_whole_cells(loaded: Checkpoint, height: int, width: int) -> None:
    figures = loaded.figures
    rows, columns = frame_size(height, width, figures)
    assert rows % figures.cell == columns % figures.cell == 0
    assert rows >= figures.cell
    assert columns >= figures.cell
    assert rows * columns <= figures.max_pixels or min(rows, columns) == figures.cell


def test_patches_of_a_picture_are_qwens(figures: MediaFigures) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    qwen = Qwen2VLImageProcessorPil(
        patch_size=figures.patch, merge_size=figures.merge, temporal_patch_size=2,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": figures.min_pixels, "longest_edge": figures.max_pixels},
    )  # fmt: skip
    theirs = qwen(picture, return_tensors="pt")
    ours, grid = patches(picture[None], figures)
    assert list(grid) == theirs["image_grid_thw"][0].tolist()
    assert (ours - theirs["pixel_values"]).abs().max() < 1e-5


def test_an_odd_last_frame_is_doubled(figures: MediaFigures) -> None:
    frames = np.random.default_rng(2).integers(0, 256, (3, 80, 80, 3), dtype=np.uint8)
    odd, grid = patches(frames, figures)
    even, _ = patches(np.concatenate([frames, frames[-1:]]), figures)
    assert grid == (2, 4, 4)
    assert torch.equal(odd, even)


def test_large_frames_are_scaled_down(figures: MediaFigures) -> None:
    small = replace(figures, max_pixels=80 * 80)
    _, grid = patches(np.zeros((2, 160, 320, 3), np.uint8), small)
    assert grid[1] * grid[2] * small.patch**2 <= small.max_pixels
