"""Is the speech that left whole? Protocol, accounts of samples, and what sound and text tell.

Protocol and accounts are exact. What only the sound shows is judged by how this very voice
speaks and ends when it is whole (`speaking_time`); a voice that is not known is not judged by it.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from monitors.contract import FaultFound
from monitors.detectors import speaking_time
from monitors.detectors.finding import Abstained, Verdict, examine
from monitors.detectors.speaking_time import SHORT_LOG, TimeTaken, Unjudged, VoiceModel
from monitors.detectors.speech_sound import Sound, measure
from monitors.labels import Detector, Fault, Grade, Origin

HOLE_S = 0.030
GAP_S = 1.2
SILENT_TAIL_S = 1.0
SILENCE_DB = -55.0  # of full scale: below it there is no speech at all
CLIPPED_SHARE = 0.001


class SpeechAudit:
    """Follows one speech stream, and judges it at its end.

    `feed` only keeps what came. `close` takes about a millisecond for ten seconds of speech: call
    it where nobody waits; from then on nothing may be fed.
    """

    def __init__(
        self, samples_per_frame: int, sample_rate: int, voice: VoiceModel | None = None
    ) -> None:
        self._samples_per_frame = samples_per_frame
        self._rate = sample_rate
        self._voice = voice
        self._packets: list[bytes] = []
        self._odd = 0  # packets that end inside a sample
        self.frames = 0
        self.samples = 0

    def feed(self, frames: int, pcm: bytes) -> None:
        """Takes one packet: int16 little-endian mono, made from `frames` codec frames."""
        self.frames += frames
        self.samples += len(pcm) // 2
        self._odd += len(pcm) % 2
        self._packets.append(pcm[:-1] if len(pcm) % 2 else pcm)

    def close(self, reason: str | None, text: str, made: int | None = None) -> Verdict:
        """The verdict on the whole stream that should speak `text`.

        `reason` is why speech ended ("stop", "length"); None when no final event ever came.
        `made`: codec frames by the engine's own count; None: it said none. Not for a stream that
        the client cancelled.
        """
        exact = *_protocol(reason), *self._accounts(made), *_empty(self.samples, text)
        if not self.samples:
            return exact
        heard = examine(Detector.SPEECH, partial(self._heard, text)).verdict
        if isinstance(heard, Abstained):
            return exact or heard
        return (*exact, *heard)

    def _heard(self, text: str) -> Verdict:
        """What sound and text tell."""
        pcm = np.frombuffer(b"".join(self._packets), "<i2")
        joints = np.cumsum([len(packet) // 2 for packet in self._packets])[:-1]
        sound = measure(pcm, self._rate, joints.tolist())
        taken = self._time(text, sound)
        faults = *_cut(self._voice, sound, taken, text), *_flaws(sound)
        return Abstained(taken.reason) if isinstance(taken, Unjudged) and not faults else faults

    def _accounts(self, made: int | None) -> Iterator[FaultFound]:
        if self._odd:
            yield _found(
                "half_sample",
                f"{self._odd} packets end inside a sample",
                value=self._odd,
                limit=0,
                unit="packets",
            )
        frames = self.frames if made is None else made
        owed = frames * self._samples_per_frame
        if owed == self.samples:
            return
        rule = "samples_lost" if owed > self.samples else "samples_added"
        yield _found(
            rule,
            f"{frames} codec frames give {owed} samples; {self.samples} were sent",
            at_s=self.samples / self._rate if owed > self.samples else None,
            value=self.samples,
            limit=owed,
            unit="samples",
        )

    def _time(self, text: str, sound: Sound) -> TimeTaken | Unjudged:
        if self._voice is None:
            return Unjudged("it is not known how this voice speaks")
        if not _speakable(text):
            return Unjudged("nothing is to be said")
        seconds = sound.speech.seconds if sound.level_db >= SILENCE_DB else 0.0
        return speaking_time.judge(self._voice, text, seconds)


def _protocol(reason: str | None) -> Iterator[FaultFound]:
    if reason is None:
        yield _found("no_final_event", "the stream ended without saying why")
    elif reason == "length":
        yield _found("length", "the Talker was cut off at its limit")


def _empty(samples: int, text: str) -> Iterator[FaultFound]:
    letters = _speakable(text)
    if letters and not samples:
        yield _found("empty", f"no samples for {letters} letters of text")


def _speakable(text: str) -> int:
    return sum(letter.isalnum() for letter in text)


def _cut(
    voice: VoiceModel | None, sound: Sound, taken: TimeTaken | Unjudged, text: str
) -> Iterator[FaultFound]:
    """What a voice that is known does not do."""
    if isinstance(taken, TimeTaken) and taken.is_short:
        yield _found(
            "short",
            f"spoken in {taken.spoken_s:.2f} s; the text takes {taken.expected_s:.2f} s, "
            f"{-taken.z:.1f} deviations more",
            at_s=sound.speech.at_s + sound.speech.seconds,
            value=taken.log,
            limit=SHORT_LOG,
            unit="ln of spoken over expected",
        )
    if voice is None or sound.level_db < SILENCE_DB or not _speakable(text):
        return
    if voice.end_db is not None and sound.end_db > voice.end_db:
        yield _found(
            "hard_end",
            f"the last 20 ms are at {sound.end_db:+.0f} dB of the speech level; this voice fades "
            f"below {voice.end_db:+.0f} dB",
            at_s=sound.seconds,
            value=sound.end_db,
            limit=voice.end_db,
            unit="dB",
        )
    elif voice.tail_s is not None and sound.tail_s < voice.tail_s:
        yield _found(
            "no_tail",
            f"{1000 * sound.tail_s:.0f} ms of silence after the last sound; this voice leaves at "
            f"least {1000 * voice.tail_s:.0f} ms",
            at_s=sound.seconds,
            value=sound.tail_s,
            limit=voice.tail_s,
            unit="s",
        )


def _flaws(sound: Sound) -> Iterator[FaultFound]:
    """What is heard, and may be the voice's own way: it shows, and counts against nobody."""
    if sound.level_db < SILENCE_DB:
        yield _soft("silent", 0.0, sound.level_db, SILENCE_DB, "dB")
        return
    end_s = sound.speech.at_s + sound.speech.seconds
    for rule, at_s, value, limit, unit in (
        ("zero_run", sound.hole.at_s, sound.hole.seconds, HOLE_S, "s"),
        ("gap", sound.gap.at_s, sound.gap.seconds, GAP_S, "s"),
        ("silent_tail", end_s, sound.tail_s, SILENT_TAIL_S, "s"),
        ("clipping", None, sound.clipped_share, CLIPPED_SHARE, "share of samples"),
    ):
        if value > limit:
            yield _soft(rule, at_s, value, limit, unit)
    if sound.clicks:
        yield _soft("click", sound.clicks[0], len(sound.clicks), 0, "joints of packets")


def _soft(rule: str, at_s: float | None, value: float, limit: float, unit: str) -> FaultFound:
    words = f"{value:.3g} {unit}; the limit is {limit:g}"
    return _found(rule, words, Grade.SOFT, at_s=at_s, value=value, limit=limit, unit=unit)


def _found(
    rule: str,
    detail: str,
    grade: Grade = Grade.HARD,
    *,
    at_s: float | None = None,
    value: float | None = None,
    limit: float | None = None,
    unit: str = "",
) -> FaultFound:
    return FaultFound(
        fault=Fault.SPEECH_TRUNCATED,
        grade=grade,
        origin=Origin.OUTPUT,
        detector=Detector.SPEECH,
        rule=rule,
        detail=detail,
        at_ms=None if at_s is None else 1000.0 * at_s,
        value=None if value is None else float(value),
        limit=None if limit is None else float(limit),
        unit=unit,
    )
