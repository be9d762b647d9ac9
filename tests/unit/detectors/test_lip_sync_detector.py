"""The voice against the mouth: how far apart they are, or why that cannot be told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.detectors.finding import Abstained
from monitors.detectors.lip_sync import STEP_MS, LipSignals, estimate, judge
from monitors.labels import Detector, Fault, Grade, Origin

ROWS, COLUMNS = 18, 32


def syllables(count: int, seed: int) -> np.ndarray:
    """Loudness of made-up speech, dB: syllables of any length, and pauses."""
    rng, level = np.random.default_rng(seed), []
    while len(level) < count:
        level += [-20.0 + rng.normal(0, 3)] * int(rng.integers(2, 7))
        level += [-55.0 + rng.normal(0, 3)] * int(rng.integers(1, 5 if rng.uniform() < 0.8 else 20))
    return np.array(level[:count])


def talker(
    seconds: float = 10.0, offset_ms: float = 0.0, seed: int = 0, *, sign: float = 1.0
) -> LipSignals:
    """A mouth of four cells that opens as the voice sounds, in a picture that moves elsewhere."""
    count, late = round(seconds * 1000 / STEP_MS), round(offset_ms / STEP_MS)
    rng = np.random.default_rng(seed + 1)
    voice = syllables(count + 200, seed)
    luma = 120.0 + rng.normal(0, 2.0, (count, ROWS, COLUMNS))
    luma[:, 2:5, 3:20] += 30.0 * np.sin(np.arange(count) / 9.0)[:, None, None]  # something sways
    luma[:, 12, 14:18] -= sign * (voice[100 : 100 + count, None] + 50.0)
    level = voice[100 - late : 100 - late + count] + rng.normal(0, 9.0, count)
    return LipSignals(level, np.clip(luma, 0, 255).astype(np.uint8), fps=25.0)


def told(signals: LipSignals) -> list[tuple[str, Grade]]:
    verdict = judge(signals)
    assert not isinstance(verdict, Abstained), verdict
    return [(fault.rule, fault.grade) for fault in verdict]


def reason(signals: LipSignals) -> str:
    verdict = judge(signals)
    assert isinstance(verdict, Abstained), verdict
    return verdict.reason


def test_the_offset_is_found_to_half_a_picture_and_where_it_is_told_to_one():
    rng = np.random.default_rng(0)
    errors = list[float]()
    for steps, seed in zip(rng.integers(-20, 21, 400), rng.integers(0, 1001, 400), strict=True):
        signals = talker(offset_ms=steps * STEP_MS, seed=int(seed))
        found = estimate(signals.level_db, signals.luma)
        if isinstance(found, Abstained):
            errors.append(np.inf)
            continue
        errors.append(abs(found.offset_ms - steps * STEP_MS))
        assert errors[-1] <= STEP_MS or isinstance(judge(signals), Abstained)
    assert np.mean(np.array(errors) <= STEP_MS / 2) >= 0.99


def test_what_follows_the_voice_in_a_still_picture_is_no_mouth():
    signals = talker(offset_ms=-400.0)
    still = np.repeat(signals.luma[:1], len(signals.luma), axis=0)
    still[:, 12, 14:18] = signals.luma[:, 12, 14:18]
    assert "stands still" in reason(replace(signals, luma=still))


@pytest.mark.parametrize("offset_ms", [-80.0, 0.0, 80.0, 160.0])
def test_what_viewers_accept_is_never_hard(offset_ms: float):
    assert all(grade is Grade.SOFT for _, grade in told(talker(offset_ms=offset_ms)))


@pytest.mark.parametrize("offset_ms", [-400.0, -120.0, 240.0, 800.0])
def test_what_viewers_reject_is_a_hard_input_fault_with_how_much(offset_ms: float):
    verdict = judge(talker(offset_ms=offset_ms))
    assert not isinstance(verdict, Abstained)
    (fault,) = verdict
    assert (fault.rule, fault.grade, fault.origin) == ("lips_apart", Grade.HARD, Origin.INPUT)
    assert (fault.fault, fault.detector) == (Fault.LIP_DESYNC, Detector.LIP_SYNC)
    assert fault.value == pytest.approx(offset_ms, abs=STEP_MS / 2)
    assert fault.limit == (-90.0 if offset_ms < 0 else 185.0)
    assert (fault.at_ms, fault.unit) == (0.0, "ms")


def test_an_offset_that_an_error_could_explain_is_not_hard():
    assert told(talker(offset_ms=200.0)) == [("lips_maybe_apart", Grade.SOFT)]


def test_a_long_clip_is_judged_in_parts_and_the_part_is_told():
    first, second = talker(20.0, 0.0, seed=3), talker(20.0, 400.0, seed=4)
    both = LipSignals(
        np.concatenate([first.level_db, second.level_db]),
        np.concatenate([first.luma, second.luma]),
        fps=25.0,
    )
    verdict = judge(both)
    assert not isinstance(verdict, Abstained)
    (fault,) = verdict
    assert fault.at_ms == 20_000.0


@pytest.mark.parametrize("seed", range(20))
def test_a_voice_from_elsewhere_is_left_alone(seed: int):
    """Dubbed, or a voice over slides: nothing here follows it."""
    mouth = talker(10.0, seed=seed)
    other = replace(mouth, level_db=syllables(250, seed + 500))
    assert "follows the voice" in reason(other)


def test_what_brightens_with_the_voice_is_no_mouth():
    assert "brightens" in reason(talker(sign=-1.0))


def test_a_frame_that_lights_up_around_who_speaks_is_no_mouth():
    signals = talker(offset_ms=400.0)
    luma = signals.luma.copy()
    luma[:, 15:] = luma[:, 12:13, 14:15]
    assert "too much of the picture" in reason(replace(signals, luma=luma))


def test_captions_and_slides_that_come_after_the_voice_are_no_mouth():
    for seed in range(5):
        signals = talker(12.0, seed=seed)
        luma = np.full_like(signals.luma, 120)
        speaks = np.convolve(signals.level_db > -35.0, np.ones(9), "same") > 0
        luma[np.roll(speaks, 12), 15:17, 4:28] = 30
        for turn in np.flatnonzero(~speaks[1:] & speaks[:-1]):
            luma[turn + 8 :, :14] = np.random.default_rng(turn).integers(30, 220)
        assert isinstance(judge(replace(signals, luma=luma)), Abstained)


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (talker(3.9), "shorter than 4 s"),
        (replace(talker(), fps=8.0), "8 pictures a second are too few"),
        (replace(talker(), luma=np.full((250, ROWS, COLUMNS), 90, np.uint8)), "nothing moves"),
        (replace(talker(), level_db=np.full(250, -20.0)), "no voice"),
        (replace(talker(), level_db=syllables(250, 1) - 50.0), "no voice"),
        (talker(8.0, offset_ms=2400.0), "too far from it"),
    ],
)
def test_what_cannot_be_told_is_said_to_be_so(signals: LipSignals, words: str):
    assert words in reason(signals)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_is_measured_there_is_a_verdict(data: Any):
    count = data.draw(st.integers(0, 300))
    seed = data.draw(st.integers(0, 100))
    rng = np.random.default_rng(seed)
    luma = rng.integers(0, data.draw(st.sampled_from([1, 2, 255])), (count, ROWS, COLUMNS))
    level = rng.normal(-30, data.draw(st.sampled_from([0.0, 1.0, 20.0])), count)
    verdict = judge(LipSignals(level, luma.astype(np.uint8), fps=25.0))
    assert isinstance(verdict, Abstained) or all(f.grade is not Grade.HARD for f in verdict)
