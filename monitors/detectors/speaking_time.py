"""How long a voice speaks a text: fitted to what it said, and asked whether speech is too short.

The model of a voice belongs to its weights. It is never learned from the traffic that it judges:
a version that cuts its speech would teach that short is right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitors.contract import Wire
from monitors.detectors.syllables import Kind, Language, Units, units

SHORT_LOG = -0.35  # ln(spoken / expected): under seven tenths of the time that the text takes
SHORT_Z = -4.5  # of the voice's own spread
QUIETEST_END_DB = -45.0  # of the speech level: no voice is held to a quieter end
LOUDEST_END_DB = -20.0  # a voice that ends louder than this is not known to fade
END_MARGIN_DB = 12.0  # over the loudest end heard
TAIL_SHARE = 0.5  # of the shortest tail heard
LEAST_TAIL_S = 0.03  # a limit shorter than this is within a hop or two of none
PAUSE_SHARE = 0.4  # of the time: voices shorten the pauses of a list that is all pauses
LEAST_SPREAD = 0.04
LEAST_ROWS = 40  # of a language, to know its pace
_LEAST_S = 0.05
SIZES = (3, 6, 15, 40)  # syllables: spread falls with length
LEAST_OF_SIZE = 8  # texts, to know how far a voice varies over them
_SHORTEST_S = 0.8  # shorter texts weigh no more: their ends are known to a hop only
_ROUNDS = 5
_DIGITS = 5
_OUTLIER = 3.0
_MAD = 1.4826  # makes a median absolute deviation a standard one

_Numbers = NDArray[np.float64]


class Pace(Wire, frozen=True):
    """Seconds = `start` + the counts of `Units` times what each takes. `spread`: standard
    deviation of ln(spoken / expected) for texts of under 3, 6, 15, 40 and of more syllables; None
    for those too short to be known, which vary most. `kinds`: what the texts had that it was
    fitted to: others are not judged."""

    start: float
    syllable: float
    word: float
    minor: float
    major: float
    bias: float
    spread: tuple[float | None, ...]
    kinds: frozenset[Kind]
    rows: int

    def expected_s(self, of: Units) -> float:
        """Seconds that these units take."""
        counts = of.syllables, of.words, of.minor, of.major
        each = self.syllable, self.word, self.minor, self.major
        total = self.start + sum(n * s for n, s in zip(counts, each, strict=True))
        return max(_LEAST_S, total) * math.exp(self.bias)


class VoiceModel(Wire, frozen=True):
    """One voice of one set of weights. `end_db`: of the speech level; an answer that ends louder
    was cut. `tail_s`: one that leaves less silence after its last sound was cut. None: the voice
    is not so regular, and an end tells nothing."""

    end_db: float | None = None
    tail_s: float | None = None
    paces: dict[Language, Pace] = msgspec.field(default_factory=dict[Language, Pace])

    @property
    def known(self) -> bool:
        """Whether anything can be judged by it."""
        return bool(self.paces) or self.end_db is not None or self.tail_s is not None


@dataclass(frozen=True)
class Spoken:
    """A text, the seconds from the first to the last sound of it, and how it ended: see `Sound`."""

    text: str
    seconds: float
    end_db: float
    tail_s: float


@dataclass(frozen=True)
class TimeTaken:
    """`log`: ln(spoken / expected); `z`: the same in standard deviations of the voice."""

    spoken_s: float
    expected_s: float
    log: float
    z: float

    @property
    def is_short(self) -> bool:
        return self.log < SHORT_LOG and self.z < SHORT_Z


@dataclass(frozen=True)
class Unjudged:
    """Why the time that a text took tells nothing."""

    reason: str


def judge(voice: VoiceModel, text: str, seconds: float) -> TimeTaken | Unjudged:
    """How the seconds from first to last sound compare with what the text takes."""
    counted = units(text)
    if counted is None:
        return Unjudged("the text is neither English nor Chinese")
    pace = voice.paces.get(counted.language)
    if pace is None:
        return Unjudged(f"no pace is known of this voice in {counted.language}")
    unknown = sorted(counted.kinds - pace.kinds)
    if unknown:
        return Unjudged(f"the voice's pace was fitted without: {', '.join(unknown)}")
    spread = pace.spread[_size(counted.syllables)]
    if spread is None:
        return Unjudged("the voice was hardly heard saying so little")
    expected_s = pace.expected_s(counted)
    if counted.minor * pace.minor + counted.major * pace.major > PAUSE_SHARE * expected_s:
        return Unjudged("the text is mostly pauses")
    log = math.log(max(seconds, 0.01) / expected_s)
    return TimeTaken(seconds, expected_s, log, log / spread)


def fit(rows: Sequence[Spoken]) -> VoiceModel:
    """The model of one voice from what it said whole. A language with under `LEAST_ROWS` texts
    stays unknown, and so does an end that was heard too rarely."""
    counted = [(of, row.seconds) for row in rows if (of := units(row.text)) is not None]
    paces: dict[Language, Pace] = {}
    for language in Language:
        of_language = [one for one in counted if one[0].language is language]
        if len(of_language) >= LEAST_ROWS:
            paces[language] = _pace(of_language)
    if len(rows) < LEAST_ROWS:
        return VoiceModel(paces=paces)
    end_db = max(QUIETEST_END_DB, max(row.end_db for row in rows) + END_MARGIN_DB)
    tail_s = TAIL_SHARE * min(row.tail_s for row in rows)
    return VoiceModel(
        end_db=round(end_db, _DIGITS) if end_db <= LOUDEST_END_DB else None,
        tail_s=round(tail_s, _DIGITS) if tail_s >= LEAST_TAIL_S else None,
        paces=paces,
    )


def _pace(rows: Sequence[tuple[Units, float]]) -> Pace:
    """Weighted least squares, less what lies far out: relative errors count, not seconds."""
    counts = np.array([(1, u.syllables, u.words, u.minor, u.major) for u, _ in rows], np.float64)
    seconds = np.array([s for _, s in rows], np.float64)
    each = _seconds_each(counts, seconds)
    for _ in range(_ROUNDS):
        log = _logs(counts, seconds, each)
        bias, deviation = _centre(log)
        kept = np.abs(log - bias) <= _OUTLIER * max(deviation, LEAST_SPREAD)
        each = _seconds_each(counts[kept], seconds[kept])
    log = _logs(counts, seconds, each)
    bias, _ = _centre(log)
    start, syllable, word, minor, major = (_rounded(float(value)) for value in each)
    return Pace(
        start=start,
        syllable=syllable,
        word=word,
        minor=minor,
        major=major,
        bias=_rounded(bias),
        spread=_spread(log - bias, counts[:, 1]),
        kinds=frozenset(kind for of, _ in rows for kind in of.kinds),
        rows=len(rows),
    )


def _rounded(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no minus before a zero


def _seconds_each(counts: _Numbers, seconds: _Numbers) -> _Numbers:
    weight = 1.0 / np.maximum(_SHORTEST_S, seconds)
    solved = np.linalg.lstsq(counts * weight[:, None], seconds * weight)[0]
    return np.asarray(solved, np.float64)


def _logs(counts: _Numbers, seconds: _Numbers, each: _Numbers) -> _Numbers:
    return np.log(np.maximum(seconds, 0.01) / np.maximum(_LEAST_S, counts @ each))


def _spread(log: _Numbers, syllables: _Numbers) -> tuple[float | None, ...]:
    """Of each size of text. A size that was hardly heard has that of the next shorter one."""
    sizes = np.array([_size(count) for count in syllables])
    found: list[float | None] = []
    for size in range(len(SIZES) + 1):
        of_size = log[sizes == size]
        if len(of_size) >= LEAST_OF_SIZE:
            found.append(_rounded(max(LEAST_SPREAD, _centre(of_size)[1])))
        else:
            found.append(found[-1] if found else None)
    return tuple(found)


def _size(syllables: float) -> int:
    return sum(syllables >= size for size in SIZES)


def _centre(values: _Numbers) -> tuple[float, float]:
    middle = float(np.median(values))
    return middle, _MAD * float(np.median(np.abs(values - middle)))
