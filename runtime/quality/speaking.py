"""Has a checkpoint's own Talker read texts aloud, and fits to each voice how it speaks and ends."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from monitors.detectors import speaking_time
from monitors.detectors.speaking_time import Spoken, VoiceModel
from monitors.detectors.speech import SpeechAudit
from monitors.detectors.speech_sound import measure
from monitors.detectors.syllables import Language, units
from monitors.labels import Grade
from runtime.engine.speech import SAMPLE_RATE, Speech
from runtime.model.checkpoint import Checkpoint
from runtime.model.codec import CodecStream
from runtime.model.processor import Processor
from runtime.model.voices import Made, Voices
from runtime.quality.plan import PlanError
from runtime.quality.readings import Reading, draw
from runtime.residents.port import Generate, TextPart, Turn

_ASKED = "Say {}."
MODELLED = {"short", "hard_end", "no_tail"}  # rules that a voice's model is for

Progress = Callable[[int, int], None]  # texts done, texts in all


@dataclass(frozen=True)
class Aloud:
    """One text read aloud: int16 sound at 24 kHz, the codec frames it is made of, and why it
    ended."""

    text: str
    packets: tuple[NDArray[np.int16], ...]
    frames: int
    reason: str

    @property
    def pcm(self) -> NDArray[np.int16]:
        return np.concatenate(self.packets or (np.zeros(0, np.int16),))

    def cut(self, share: float) -> "Aloud":
        """Its first part, as if no more had ever been made."""
        kept = int(share * self.frames)
        pcm = self.pcm[: kept * (len(self.pcm) // self.frames)]
        return Aloud(self.text, (pcm,), kept, self.reason)


class Reader:
    """Reads texts aloud in the voices of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._processor = Processor(checkpoint)
        self.voices: list[str] = sorted(checkpoint.config.talker_config.speaker_id)
        self.samples_per_frame = CodecStream(checkpoint).samples_per_frame

    @torch.inference_mode()
    def read(self, voice: str, text: str) -> Aloud:
        """The text as an answer, word for word. Raises `UnknownVoice`."""
        tokens = self._checkpoint.tokenizer.encode(text, add_special_tokens=False)
        asked = _asked(voice, text, len(tokens))
        prompt = self._processor.prompt(asked.turns, [])
        speech = Speech(self._checkpoint, asked, due=0.0, clock=time.monotonic)
        for token in tokens:
            speech.say(token)
        speech.end()
        packets: list[NDArray[np.int16]] = []
        while not speech.over:
            packet = speech.advance(prompt, None, 0.0, truncated=False)
            if packet is not None:
                packets.append(np.frombuffer(packet.pcm, "<i2"))
        return Aloud(text, tuple(packets), speech.frames, speech.reason or "stop")

    def faults(self, aloud: Aloud, model: VoiceModel) -> set[str]:
        """The rules that a reading breaks hard by a voice's model."""
        audit = SpeechAudit(self.samples_per_frame, SAMPLE_RATE, model)
        audit.feed(aloud.frames, aloud.pcm.tobytes())
        verdict = audit.close(aloud.reason, aloud.text, aloud.frames)
        found = verdict if isinstance(verdict, tuple) else ()
        return {fault.rule for fault in found if fault.grade is Grade.HARD}


def _asked(voice: str, text: str, tokens: int) -> Generate:
    turn = Turn(role="user", parts=(TextPart(text=_ASKED.format(text)),))
    return Generate(
        request_id="",
        session="",
        turns=(turn,),
        max_tokens=tokens,
        speech=True,
        voice=voice,
        salt="",
        cache_write=False,
    )


class VoiceReport(msgspec.Struct, frozen=True):
    """One voice. `verified`: whole readings that it was not fitted to; `unfinished`: those that
    never ended; `withdrawn`: rules that broke on a whole one and are given up; `half_found`: of as
    many readings cut in half, those that were noticed."""

    name: str
    model: VoiceModel
    verified: int
    unfinished: int
    withdrawn: tuple[str, ...]
    half_found: int


class VoicesReport(msgspec.Struct, frozen=True):
    version: str
    file: Voices
    voices: tuple[VoiceReport, ...]


def fit_voices(
    checkpoint: Checkpoint,
    readings: Sequence[Reading],
    count: int,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> VoicesReport:
    """Fit every voice to `count` texts of each kind, and verify it on as many others.

    Raises `PlanError`.
    """
    least = speaking_time.LEAST_ROWS
    if count < least:
        raise PlanError(f"{count} texts are too few to know a voice by: give at least {least}")
    reader = Reader(checkpoint)
    total = 2 * count * len(readings) * len(reader.voices)
    reports: list[VoiceReport] = []
    for name in reader.voices:
        heard: list[Aloud] = []
        for text in _texts(readings, count, seed):
            progress(len(reports) * total // len(reader.voices) + len(heard), total)
            heard.append(reader.read(name, text))
        half = count * len(readings)
        reports.append(_report(reader, name, heard[:half], heard[half:]))
    progress(total, total)
    made = Made(readings=tuple(readings), count=count, seed=seed)
    known = {report.name: report.model for report in reports}
    file = Voices(weights_digest=checkpoint.weights_digest, voices=known, made=made)
    return VoicesReport(version=checkpoint.version, file=file, voices=tuple(reports))


def _texts(readings: Sequence[Reading], count: int, seed: int) -> list[str]:
    """Those to fit to, then those to verify on, which differ from them all."""
    drawn = [draw(reading, 2 * count, seed=seed) for reading in readings]
    return [t for texts in drawn for t in texts[:count]] + [t for ts in drawn for t in ts[count:]]


def _report(
    reader: Reader, name: str, to_fit: Sequence[Aloud], to_verify: Sequence[Aloud]
) -> VoiceReport:
    model = speaking_time.fit([_row(one) for one in to_fit if one.reason == "stop"])
    whole = [one for one in to_verify if one.reason == "stop"]
    broken = [(one.text, rule) for one in whole for rule in reader.faults(one, model) & MODELLED]
    for text, rule in broken:
        model = _without(model, rule, text)
    return VoiceReport(
        name=name,
        model=model,
        verified=len(whole),
        unfinished=len(to_fit)
        + len(to_verify)
        - len(whole)
        - sum(o.reason == "stop" for o in to_fit),
        withdrawn=tuple(sorted({rule for _, rule in broken})),
        half_found=sum(bool(reader.faults(one.cut(0.5), model)) for one in whole),
    )


def _row(aloud: Aloud) -> Spoken:
    sound = measure(aloud.pcm, SAMPLE_RATE)
    return Spoken(aloud.text, sound.speech.seconds, sound.end_db, sound.tail_s)


def _without(model: VoiceModel, rule: str, text: str) -> VoiceModel:
    """A rule that a whole reading breaks is given up; a pace, for the text's language."""
    match rule:
        case "hard_end":
            return msgspec.structs.replace(model, end_db=None)
        case "no_tail":
            return msgspec.structs.replace(model, tail_s=None)
        case "short":
            counted = units(text)
            gone: Language | None = None if counted is None else counted.language
            paces = {language: pace for language, pace in model.paces.items() if language != gone}
            return msgspec.structs.replace(model, paces=paces)
        case _:
            raise ValueError(f"no model is behind the rule {rule!r}")
