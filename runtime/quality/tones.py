"""Telephone tones (DTMF, ITU-T Q.23): what a clip's audio is made of, and how answers are spoken.

A word is spoken as two tones of 40 ms and 20 ms of rest. A digit's two tones are its own key, so
it is one tone of 80 ms; any other word of `WORDS` has a pair of keys that are no digits.
"""

from itertools import groupby, permutations

import numpy as np
from numpy.typing import NDArray

from runtime.quality.words import COLOURS, DIGITS, SHAPES

Pcm = NDArray[np.float32]

LOW_HZ = (697.0, 770.0, 852.0, 941.0)
HIGH_HZ = (1209.0, 1336.0, 1477.0, 1633.0)
KEYS = "123A456B789C*0#D"
LETTERS = "ABCD*#"

REST = ""  # no tone
UNKNOWN = ("#", "#")  # any word that has no tones of its own
_PAIRS = dict(zip((*COLOURS, *SHAPES), permutations(LETTERS, 2), strict=False))
WORDS: dict[str, tuple[str, str]] = {
    **{word: (str(value), str(value)) for value, word in enumerate(DIGITS)},
    **_PAIRS,
}
_WORD_OF = {keys: word for word, keys in WORDS.items()}

FRAME_S = 0.020
FLOOR_RMS = 0.005  # of full scale: below it nothing sounds
DOMINANCE = 2.0  # the strongest tone of each group over the next
REST_SHARE = 0.15  # of the loudest frame: below it a frame is a rest


def frequencies(key: str) -> tuple[float, float]:
    """The low and the high tone of a key, in Hz."""
    place = KEYS.index(key)
    return LOW_HZ[place // 4], HIGH_HZ[place % 4]


def tone(key: str, seconds: float, rate: int) -> Pcm:
    """A key pressed for `seconds`: two sines of equal level, peak 1, with ramps of 2.5 ms."""
    at = np.arange(round(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * hz * at) for hz in frequencies(key)) / 2
    ramp = np.clip(np.minimum(at, at[::-1]) / 0.0025, 0.0, 1.0)
    return (wave * ramp).astype(np.float32)


def spoken(word: str) -> tuple[str, str]:
    """The two keys of a word of text; rests where there is nothing to say."""
    bare = word.strip().lower()
    if not any(letter.isalnum() for letter in bare):
        return REST, REST
    return WORDS.get(bare, UNKNOWN)


def read_back(pcm: Pcm, rate: int) -> list[str]:
    """The words that a waveform speaks; "?" for tones that are no word.

    Blind to how the sound was made: each 20 ms is told by its spectrum at the eight frequencies,
    a rest ends a word.
    """
    frames = _frames(pcm, rate)
    floor = max(FLOOR_RMS, REST_SHARE * max((_rms(frame) for frame in frames), default=0.0))
    keys = [key_of(frame, rate, floor) for frame in frames]
    words = []
    for is_rest, run in groupby(keys, lambda key: key == REST):
        if not is_rest:
            words.append(_word([key for key, _ in groupby(run)]))
    return words


def key_of(frame: Pcm, rate: int, floor: float = FLOOR_RMS) -> str:
    """The key that sounds in a frame, `REST` below `floor`, "?" for a sound that is no key."""
    if _rms(frame) < floor:
        return REST
    at = np.arange(len(frame)) / rate
    window = np.hanning(len(frame))
    waves = np.exp(-2j * np.pi * np.outer((*LOW_HZ, *HIGH_HZ), at))
    level = np.abs(waves @ (frame * window))
    low, high = level[:4], level[4:]
    if not (_stands_out(low) and _stands_out(high)):
        return "?"
    return KEYS[4 * int(low.argmax()) + int(high.argmax())]


def _rms(frame: Pcm) -> float:
    return float(np.sqrt(np.mean(np.square(frame))))


def _stands_out(levels: NDArray[np.float64]) -> bool:
    second, first = np.sort(levels)[-2:]
    return bool(first > DOMINANCE * second)


def _frames(pcm: Pcm, rate: int) -> NDArray[np.float32]:
    size = round(FRAME_S * rate)
    count = len(pcm) // size
    return pcm[: count * size].reshape(count, size)


def _word(keys: list[str]) -> str:
    pair = (keys[0], keys[0]) if len(keys) == 1 else tuple(keys)
    return _WORD_OF.get(pair, "?")  # type: ignore[arg-type]
