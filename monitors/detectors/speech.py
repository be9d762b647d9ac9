"""Is the speech that left whole? Protocol, sample accounting, and what the sound itself shows."""

import numpy as np
from numpy.typing import NDArray

from monitors.contract import FaultFound
from monitors.labels import Detector, Fault, Grade, Origin

ZERO_RUN_S = 0.030
GAP_S = 1.2
SILENT_TAIL_S = 1.0
SILENCE_DB = -55.0  # of full scale: below it there is no speech at all
BELOW_SPEECH_DB = 32.0  # a hop this far under the speech level is a pause
HARD_END_DB = -26.0  # of the speech level: synthetic speech fades further before it ends
HARD_END_TAIL_S = 0.020
_HOP_S = 0.010

Pcm = NDArray[np.int16]


class SpeechAudit:
    """Follows one speech stream and judges it at its end.

    `synthetic` declares a voice that always fades out before it ends, as text-to-speech does;
    only then a loud last sample is called truncation.
    """

    def __init__(self, samples_per_frame: int, sample_rate: int, synthetic: bool = False) -> None:
        self._samples_per_frame = samples_per_frame
        self._rate = sample_rate
        self._synthetic = synthetic
        self._frames = 0
        self._packets: list[bytes] = []

    def feed(self, frames: int, pcm: bytes) -> None:
        """Takes one packet: int16 little-endian mono, made from `frames` codec frames."""
        self._frames += frames
        self._packets.append(pcm)

    def close(self, reason: str | None, text: str) -> tuple[FaultFound, ...]:
        """The verdict on the whole stream that should speak `text`.

        `reason` is why speech ended ("stop", "length"); None when no final event ever came.
        Not for a stream that the client cancelled.
        """
        pcm = np.frombuffer(b"".join(self._packets), "<i2")
        hard = (*_protocol(reason), *self._accounting(len(pcm)), *_empty(len(pcm), text))
        return (*hard, *self._sound(pcm)) if len(pcm) else hard

    def _accounting(self, samples: int) -> tuple[FaultFound, ...]:
        lost = self._frames * self._samples_per_frame - samples
        if lost <= 0:
            return ()
        detail = f"{lost} samples lost: {self._frames} codec frames gave {samples}"
        return (_found("samples_lost", detail),)

    def _sound(self, pcm: Pcm) -> tuple[FaultFound, ...]:
        levels = _levels_db(pcm, round(self._rate * _HOP_S))
        loudness = float(np.percentile(levels, 90))
        if loudness < SILENCE_DB:
            detail = f"speech level {loudness:.0f} dB of full scale"
            return (_found("silent", detail, Grade.SOFT),)
        voiced = np.flatnonzero(levels > loudness - BELOW_SPEECH_DB)
        tail_s = (len(levels) - 1 - int(voiced[-1])) * _HOP_S
        longest_gap_s = float(np.diff(voiced).max(initial=1) - 1) * _HOP_S
        zeros_s = _longest_zero_run(pcm) / self._rate
        soft = tuple(
            _found(rule, f"{seconds:.2f} s; at most {limit:g}", Grade.SOFT)
            for rule, seconds, limit in (
                ("zero_run", zeros_s, ZERO_RUN_S),
                ("gap", longest_gap_s, GAP_S),
                ("silent_tail", tail_s, SILENT_TAIL_S),
            )
            if seconds > limit
        )
        return (*self._hard_end(levels, loudness, tail_s), *soft)

    def _hard_end(
        self, levels: NDArray[np.float64], loudness: float, tail_s: float
    ) -> tuple[FaultFound, ...]:
        end = float(levels[-2:].max()) - loudness
        if not self._synthetic or tail_s >= HARD_END_TAIL_S or end <= HARD_END_DB:
            return ()
        return (_found("hard_end", f"last 20 ms at {end:+.0f} dB of the speech level"),)


def _found(rule: str, detail: str, grade: Grade = Grade.HARD) -> FaultFound:
    return FaultFound(
        fault=Fault.SPEECH_TRUNCATED,
        grade=grade,
        origin=Origin.OUTPUT,
        detector=Detector.SPEECH,
        rule=rule,
        detail=detail,
    )


def _protocol(reason: str | None) -> tuple[FaultFound, ...]:
    if reason is None:
        return (_found("no_final_event", "the stream ended without saying why"),)
    if reason == "length":
        return (_found("length", "the Talker was cut off at its limit"),)
    return ()


def _empty(samples: int, text: str) -> tuple[FaultFound, ...]:
    speakable = sum(letter.isalnum() for letter in text)
    if samples or not speakable:
        return ()
    return (_found("empty", f"no samples for {speakable} letters of text"),)


def _levels_db(pcm: Pcm, hop: int) -> NDArray[np.float64]:
    """Level of each hop in dB of full scale; the last hop may be short."""
    starts = np.arange(0, len(pcm), hop)
    power = np.add.reduceat((pcm / 32768.0) ** 2, starts)
    lengths = np.diff(np.append(starts, len(pcm)))
    return 10.0 * np.log10(power / lengths + 1e-10)


def _longest_zero_run(pcm: Pcm) -> int:
    """Samples of exact zero in a row, between the first and the last sample that is not."""
    sounding = np.flatnonzero(pcm)
    return int(np.diff(sounding).max(initial=1)) - 1
