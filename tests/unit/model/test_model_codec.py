import numpy as np
import pytest
import torch

from runtime.model.checkpoint import Checkpoint
from runtime.model.codec import CodecStream

FRAMES = 90  # past the attention window of 72 frames


@pytest.fixture(scope="module")
def codes() -> torch.Tensor:
    return torch.randint(128, (8, FRAMES), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def whole(loaded: Checkpoint, codes: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        return loaded.model.code2wav(codes[None])[0, 0].numpy()


@pytest.mark.parametrize("sizes", [(1,), (4,), (1, 2, 5), (FRAMES,)])
def test_any_packets_give_the_whole_decode(
    loaded: Checkpoint, codes: torch.Tensor, whole: np.ndarray, sizes: tuple[int, ...]
) -> None:
    stream, at, out = CodecStream(loaded), 0, []
    while at < FRAMES:
        size = sizes[len(out) % len(sizes)]
        out.append(stream.push(codes[:, at : at + size]))
        at += size
    pcm = np.concatenate(out)
    assert len(pcm) == len(whole) == FRAMES * 480 - stream.delay
    assert np.abs(pcm - whole).max() < 1e-4


def test_samples_are_480_a_frame_once_finished(loaded: Checkpoint, codes: torch.Tensor) -> None:
    for frames in (1, 2, 7):
        stream = CodecStream(loaded)
        first = stream.push(codes[:, :frames])
        assert len(first) == stream.samples == frames * 480 - stream.delay
        assert len(stream.finish()) == stream.delay
        assert stream.samples == frames * stream.samples_per_frame == frames * 480
        assert len(stream.finish()) == 0


def test_a_stream_without_frames_ends_without_samples(loaded: Checkpoint) -> None:
    assert len(CodecStream(loaded).finish()) == 0


def test_speech_is_audible_and_never_clips(whole: np.ndarray) -> None:
    assert np.isfinite(whole).all()
    assert 0.02 < np.sqrt(np.mean(whole**2)) < 0.5
    assert np.abs(whole).max() < 1.0
    assert abs(whole.mean()) < 0.01


def test_streams_do_not_share_memory(loaded: Checkpoint, codes: torch.Tensor) -> None:
    alone = CodecStream(loaded)
    expected = [alone.push(codes[:, :4]), alone.push(codes[:, 4:8])]
    one, other = CodecStream(loaded), CodecStream(loaded)
    got = [one.push(codes[:, :4])]
    other.push(codes[:, 40:50])
    got.append(one.push(codes[:, 4:8]))
    assert np.array_equal(np.concatenate(got), np.concatenate(expected))
