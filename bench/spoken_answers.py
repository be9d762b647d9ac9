"""Answers that the engine of a shipped checkpoint speaks, and what the gateway says of them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from monitors.contract import DrillKind, DrillOrder
from monitors.detectors.finding import Verdict
from monitors.detectors.speaking_time import VoiceModel
from monitors.detectors.speech import SpeechAudit
from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.engine.shadow import ShadowSettings
from runtime.engine.speech import SAMPLE_RATE
from runtime.model.checkpoint import Checkpoint
from runtime.quality import readings
from runtime.quality.readings import Reading
from runtime.residents.port import AudioDelta, Finished, Generate, TextDelta, TextPart, Turn

FRAME = 480  # samples, of the codec of the checkpoints that ship


@dataclass(frozen=True)
class Answered:
    """One spoken answer of the tiny engine, whose accounts are not looked at."""

    voice: str
    text: str
    packets: tuple[AudioDelta, ...]
    finished: Finished


def answers(loaded: Checkpoint, count: int, *, truncated: bool, seed: int) -> list[Answered]:
    """Answers to "Say ...", four in flight, the voices by turns; `truncated`: under the drill."""
    settings = EngineSettings(
        name="bench",
        version=loaded.version,
        pool_bytes=64_000_000,
        max_running=4,
        shadow=ShadowSettings(share=0.0),
    )
    engine = Engine(loaded, settings, clock=time.monotonic, die=lambda: None)
    if truncated:
        engine.drill(DrillOrder(kind=DrillKind.TRUNCATE, seconds=3600.0))
    texts = readings.draw(Reading.WORDS, count, seed=seed)
    names = sorted(loaded.voices)
    found: list[Answered] = []
    for first in range(0, count, 4):
        asked = {
            f"{number}": _say(f"{number}", text, names[number % len(names)])
            for number, text in enumerate(texts[first : first + 4], first)
        }
        found += _answered(engine, asked)
    return found


def _say(name: str, text: str, voice: str) -> Generate:
    turn = Turn(role="user", parts=(TextPart(text=f"Say {text}."),))
    return Generate(
        request_id=name,
        session="",
        turns=(turn,),
        max_tokens=32,
        speech=True,
        voice=voice,
        salt="",
        cache_write=False,
    )


def _answered(engine: Engine, asked: dict[str, Generate]) -> Iterator[Answered]:
    texts = dict.fromkeys(asked, "")
    packets: dict[str, list[AudioDelta]] = {name: [] for name in asked}
    for generate in asked.values():
        engine.submit(generate, [])
    open_ones = set(asked)
    while open_ones:
        for event in engine.step():
            match event:
                case TextDelta():
                    texts[event.request_id] += event.text
                case AudioDelta():
                    packets[event.request_id].append(event)
                case Finished():
                    name = event.request_id
                    open_ones.remove(name)
                    yield Answered(asked[name].voice, texts[name], tuple(packets[name]), event)
                case _:
                    raise RuntimeError(f"no answer: {event}")


def verdict_on(answer: Answered, model: VoiceModel, *, accounts: bool) -> Verdict:
    """What the gateway says of it. With `accounts` False it sees sound that ends by itself, of as
    many samples as were made: nothing but the sound and the text can tell."""
    audit = SpeechAudit(FRAME, SAMPLE_RATE, model)
    if accounts:
        for packet in answer.packets:
            audit.feed(packet.frames, packet.pcm)
        finished = answer.finished
        return audit.close(finished.speech_reason, answer.text, finished.codec_frames)
    pcm = b"".join(packet.pcm for packet in answer.packets)
    frames = len(pcm) // (2 * FRAME)
    audit.feed(frames, pcm[: 2 * FRAME * frames])
    return audit.close("stop", answer.text)
