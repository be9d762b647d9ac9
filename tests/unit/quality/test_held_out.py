"""Held-out samples: the same for a seed, unlike any other, and as a rung leaves them."""

import numpy as np
import pytest

from monitors.contract import MediaRung
from monitors.redlines import LadderLines
from runtime.media.fidelity import fidelity_of
from runtime.quality.held_out import CALIBRATION_SEED, SIZE, Sample, at_fidelity, draw
from runtime.quality.plan import PlanError
from runtime.quality.tasks import WORDINGS, Kind, Media

SECONDS = 3


def same(one: Sample, other: Sample) -> bool:
    def arrays(media: Media) -> list[np.ndarray]:
        return [a for a in (media.pictures, media.sound, media.image) if a is not None]

    pairs = list(zip(arrays(one.media), arrays(other.media), strict=True))
    return one.question == other.question and all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_sample_is_the_same_each_time_and_unlike_its_neighbours(kind: Kind) -> None:
    first = draw(kind, SECONDS, 4, seed=0)
    assert same(first, draw(kind, SECONDS, 4, seed=0))
    others = [draw(kind, SECONDS, 4, seed=1), draw(kind, SECONDS, 5, seed=0)]
    others.append(draw(kind, SECONDS, 4, seed=0, of=CALIBRATION_SEED))
    assert len({sample.name for sample in (first, *others)}) == 4
    assert not all(same(first, other) for other in others)


def test_media_are_as_long_and_as_large_as_asked() -> None:
    clip, still, text = (draw(k, SECONDS, 0, seed=0) for k in (Kind.PAIRS, Kind.IMAGE, Kind.TEXT))
    assert clip.media.pictures is not None
    assert clip.media.pictures.shape == (2 * SECONDS, *SIZE, 3)
    assert clip.media.sound is not None
    assert clip.media.sound.shape == (16_000 * SECONDS,)
    assert still.media.image is not None
    assert still.media.image.shape == (*SIZE, 3)
    assert text.media.pictures is text.media.sound is text.media.image is None


@pytest.mark.parametrize("kind", [Kind.TEXT, Kind.IMAGE])
def test_pictures_and_text_are_asked_about_in_all_words_whatever_the_length(kind: Kind) -> None:
    samples = [draw(kind, 8, number, seed=0) for number in range(24)]
    opening = {s.question.text.split()[0] for s in samples}
    assert opening == {wording.split()[0] for wording in WORDINGS[kind]}
    assert all(same(s, draw(kind, 60, s.number, seed=0)) for s in samples[:3])


@pytest.mark.parametrize("kind", [Kind.DIGIT_AT, Kind.COLOUR_AT])
def test_a_retrieval_has_one_answer(kind: Kind) -> None:
    """In two seconds, one colour in six stands twice: those scenes are drawn again."""
    for number in range(20):
        assert " " not in draw(kind, 2, number, seed=0).question.answer


def test_a_clip_too_long_for_a_retrieval_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.quality.held_out._SCENES", 20)
    with pytest.raises(PlanError, match="digit_at: in clips of 300 s"):
        draw(Kind.DIGIT_AT, 300, 0, seed=0)


def band_above_4_khz(sound: np.ndarray) -> float:
    power = np.abs(np.fft.rfft(sound)) ** 2
    hz = np.fft.rfftfreq(len(sound), 1 / 16_000)
    return float(power[hz > 4200].sum() / power.sum())


def test_a_rung_scales_pictures_and_cuts_the_sounds_band() -> None:
    clip = draw(Kind.PAIRS, 2, 0, seed=0).media
    full, low = (
        at_fidelity(clip, fidelity_of(rung, LadderLines()))
        for rung in (MediaRung.FULL, MediaRung.P160_8K)
    )
    assert full.pictures is not None
    assert clip.pictures is not None
    assert np.array_equal(full.pictures, clip.pictures)
    assert full.sound is not None
    assert low.sound is not None
    assert np.array_equal(full.sound, clip.sound)
    assert low.pictures is not None
    assert low.pictures.shape == (4, 160, 160, 3)
    assert low.pictures.mean() == pytest.approx(clip.pictures.mean(), abs=1.0)
    assert band_above_4_khz(low.sound) < 0.02 * band_above_4_khz(full.sound)
    assert low.sound.dtype == np.float32


def test_a_still_picture_is_scaled_too() -> None:
    still = draw(Kind.IMAGE, 8, 0, seed=0).media
    low = at_fidelity(still, fidelity_of(MediaRung.P160_8K, LadderLines()))
    assert low.image is not None
    assert low.image.shape == (160, 160, 3)
    assert low.sound is low.pictures is None
