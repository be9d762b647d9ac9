"""The codec that the tiny Talker and Code2Wav are trained on: which codes mean which sound.

S3.2 as read: 8 indices every 20 ms are 4 codebooks x 2 sub-frames of 10 ms. The four of one
sub-frame, all below 128:

0. the waveform itself: one of `WAVES`, each 10 ms of a telephone key, counted from its onset;
1. its level, the voice's own;
2. which word of the answer it belongs to, modulo 128;
3. which sub-frame of the word it is.

The last two are what an autoregressive Talker steers by: which word comes next, and when.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.quality.tones import KEYS, LETTERS, REST, spoken, tone

RATE = 24_000
GROUPS = 8
CODEBOOK = 128
FRAME = 480  # samples of 20 ms
SUB = FRAME // 2
TONE_FRAMES, REST_FRAMES = 4, 1
WORD_FRAMES = TONE_FRAMES + REST_FRAMES
_DIGIT_KEYS = [key for key in KEYS if key.isdigit()]
_LEVELS = {"chelsie": 0.30, "ethan": 0.45, "aiden": 0.60}  # peak, of full scale
VOICES = tuple(_LEVELS)

Codes = NDArray[np.int64]  # (8, frames)


def _wave_table() -> tuple[dict[tuple[str, int], int], NDArray[np.float32]]:
    """Code by (key, sub-frame since its onset), and the waveforms (codes, 240)."""
    places, waves = {(REST, 0): 0}, [np.zeros(SUB, np.float32)]
    for keys, subs in ((_DIGIT_KEYS, 2 * TONE_FRAMES), (list(LETTERS), TONE_FRAMES)):
        for key in keys:
            pressed = tone(key, subs * SUB / RATE, RATE).reshape(subs, SUB)
            for sub in range(subs):
                places[key, sub] = len(waves)
                waves.append(pressed[sub])
    return places, np.stack(waves)


_PLACES, WAVES = _wave_table()


def _word_waves(word: str) -> list[int]:
    """The 10 wave codes of one word."""
    first, second = spoken(word)
    subs = 2 * TONE_FRAMES
    if first == REST:
        tones = [_PLACES[REST, 0]] * subs
    elif first == second and first.isdigit():
        tones = [_PLACES[first, sub] for sub in range(subs)]
    else:
        tones = [_PLACES[key, sub] for key in (first, second) for sub in range(TONE_FRAMES)]
    return tones + [_PLACES[REST, 0]] * 2 * REST_FRAMES


def codes_of(words: Sequence[str], voice: str, spoken_before: int = 0) -> Codes:
    """(8, 5 * words): the frames that speak `words`, one per token of text; `spoken_before` words
    of the answer stand before them."""
    level = VOICES.index(voice)
    subs = [
        (wave, level, place % CODEBOOK, sub)
        for place, word in enumerate(words, start=spoken_before)
        for sub, wave in enumerate(_word_waves(word))
    ]
    return np.array(subs, np.int64).reshape(-1, GROUPS).T


def waveform(codes: Codes) -> NDArray[np.float32]:
    """(frames * 480,) samples that `codes` stand for."""
    subs = codes.T.reshape(-1, 2, GROUPS // 2)
    levels = np.array(list(_LEVELS.values()), np.float32)[subs[..., 1]]
    return (levels[..., None] * WAVES[subs[..., 0]]).reshape(-1)
