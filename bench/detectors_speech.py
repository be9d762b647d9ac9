"""How well damage to generated speech is found, what whole speech is wrongly accused of, and the
price of both.

Voices are fitted on other phrases than they are judged on (`tests/faults/voices.py`).
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from bench.board import Figure, options, show
from bench.proportions import recall
from bench.spoken_answers import Answered, answers, verdict_on
from bench.timing import seconds_of
from monitors.detectors import speaking_time
from monitors.detectors.finding import Abstained, Verdict
from monitors.detectors.playout import PlayoutClock
from monitors.detectors.speaking_time import VoiceModel
from monitors.detectors.speech import SpeechAudit
from monitors.detectors.syllables import Language
from monitors.intervals import exact_interval
from monitors.labels import Detector, Grade
from runtime.model import checkpoint
from runtime.model.shipped import SHIPPED
from runtime.quality import readings
from runtime.quality.readings import Reading
from runtime.verdicts import Verdicts
from tests.faults import speech, voices
from tests.faults.speech import CUTS, EXACT, FLAWS, FRAME, Stream
from tests.faults.voices import AWKWARD, HZ, VOICES, Voice

BARS = {"cut_in_half": 0.97, "cut_anywhere": 0.95, "last_400_ms": 0.90, "last_100_ms": None}
CLEAN_ITEMS = 750  # of each language: with none wrong, the interval ends under 0.5 %
FIT_SEED, JUDGED_SEED = 100, 200
BUDGET_MS = 5.0  # of a processor, for a second of speech
LONG_S = 60.0
LAST_SOUND_S = 0.4  # shorter utterances have no last 0.4 s to lose
LOOP_TICKS_S = 0.0005


@dataclass(frozen=True)
class Spoken:
    """What is judged in one language."""

    language: Language
    items: tuple[tuple[Stream, VoiceModel], ...]


def spoken(language: Language, count: int, fitted: int) -> Spoken:
    """`count` whole streams, spread over the language's voices."""
    speakers = [voice for voice in VOICES if voice.language is language]
    share = -(-count // len(speakers))
    items: list[tuple[Stream, VoiceModel]] = []
    for number, voice in enumerate(speakers):
        model = known(voice, fitted)
        texts = voices.texts(language, share, seed=JUDGED_SEED + number)
        items += [(speech.stream(text, voices.say(voice, text)), model) for text in texts]
    return Spoken(language, tuple(items))


def known(voice: Voice, fitted: int) -> VoiceModel:
    texts = readings.draw(Reading(voice.language.value), fitted, seed=FIT_SEED)
    return speaking_time.fit([speech.spoken(text, voices.say(voice, text)) for text in texts])


def has(verdict: Verdict, grade: Grade, rule: str | None = None) -> bool:
    found = () if isinstance(verdict, Abstained) else verdict
    return any(fault.grade is grade and rule in (None, fault.rule) for fault in found)


# ---------------------------------------------------------------- right and wrong
def judged(of: Spoken) -> list[Figure]:
    """Of one language: what whole speech is accused of, and what damage is found."""
    clean = [speech.judge(one, model) for one, model in of.items]
    wrong = sum(has(verdict, Grade.HARD) for verdict in clean)
    soft = sum(has(verdict, Grade.SOFT) for verdict in clean)
    abstained = sum(isinstance(verdict, Abstained) for verdict in clean)
    hits, figures = 0, list[Figure]()
    for inject in (*CUTS, *EXACT):
        bar = BARS.get(inject.__name__, 1.0)
        damaged = list(_damaged(of, inject, whole=inject is not CUTS[2]))
        found = sum(has(verdict, Grade.HARD) for verdict in damaged)
        hits += found
        figures.append(_recall(f"{of.language}: {inject.__name__}", found, len(damaged), bar))
    for rule, inject in FLAWS.items():
        damaged = list(_damaged(of, inject))
        found = sum(has(verdict, Grade.SOFT, rule) for verdict in damaged)
        figures.append(_recall(f"{of.language}: {rule}, shown as soft", found, len(damaged), None))
    low, high = exact_interval(hits, hits + wrong)
    return [
        _accused(f"{of.language}: whole speech accused", wrong, len(clean), abstained),
        _awkward(of),
        _accused(f"{of.language}: whole speech with a soft mark", soft, len(clean), abstained),
        *figures,
        Figure(
            f"{of.language}: precision", hits / (hits + wrong), "", None, "", low=low, high=high
        ),
    ]


def _awkward(of: Spoken) -> Figure:
    """Texts whose reading is a guess, in every voice of the language."""
    models = list({id(model): model for _, model in of.items}.values())
    speakers = [voice for voice in VOICES if voice.language is of.language]
    verdicts = [
        speech.judge(speech.stream(text, voices.say(voice, text)), model)
        for voice, model in zip(speakers, models, strict=True)
        for text in AWKWARD[of.language]
    ]
    wrong = sum(has(verdict, Grade.HARD) for verdict in verdicts)
    abstained = sum(isinstance(verdict, Abstained) for verdict in verdicts)
    return _accused(f"{of.language}: awkward texts accused", wrong, len(verdicts), abstained)


def _damaged(of: Spoken, inject: speech.Injector, *, whole: bool = True) -> Iterator[Verdict]:
    """`whole` False leaves out what is too short to lose its last sound."""
    rng = np.random.default_rng(JUDGED_SEED)
    for one, model in of.items:
        if whole or len(one.pcm) / HZ > 2 * LAST_SOUND_S:
            yield speech.judge(inject(one, rng), model)


def _recall(bar: str, found: int, of: int, target: float | None) -> Figure:
    return recall(f"recall, {bar} (n={of})", found, of, target, "")


def _accused(bar: str, wrong: int, of: int, abstained: int) -> Figure:
    low, high = exact_interval(wrong, of)
    interval = f"95 %: {100 * low:.2f} to {100 * high:.2f} %; abstained {abstained}"
    hard = "accused" in bar
    return Figure(f"{bar} (n={of})", wrong, "items", 0.0 if hard else None, interval)


# ---------------------------------------------------------------- when packets come
def played(count: int) -> list[Figure]:
    """Streams of 8 s with jitter, and stalls of seeded length and place."""
    rng = np.random.default_rng(JUDGED_SEED)
    calm = [_jittered(rng, pace=float(rng.uniform(0.2, 0.9))) for _ in range(count)]
    wrong = sum(_playout(one) != () for one in calm)
    audible = [speech.stalled(one, rng.uniform(1, 6), rng.uniform(0.2, 2.8)) for one in calm]
    hanging = [speech.stalled(one, rng.uniform(1, 6), rng.uniform(3.2, 8.0)) for one in calm]
    slow = [_jittered(rng, pace=float(rng.uniform(1.5, 12.0))) for _ in range(count)]
    hard = sum(has(_playout(one), Grade.HARD) for one in (*audible, *slow))
    return [
        _accused("playout: calm streams accused", wrong, count, 0),
        _accused("playout: short stalls and slow streams accused hard", hard, 2 * count, 0),
        _recall(
            "playout: stall shown",
            sum(has(_playout(one), Grade.SOFT, "stall") for one in audible),
            count,
            1.0,
        ),
        _recall("playout: hang", sum(has(_playout(o), Grade.HARD) for o in hanging), count, 1.0),
        _recall("playout: too slow, shown", sum(_playout(one) != () for one in slow), count, 1.0),
    ]


def _jittered(rng: np.random.Generator, pace: float) -> list[tuple[float, int]]:
    """Up to 50 ms of delay on each packet; they stay in order."""
    packets = speech.on_time(8.0, pace=pace)
    times = np.array([at for at, _ in packets]) + rng.uniform(0.0, 0.05, len(packets))
    ordered = np.maximum.accumulate(times).tolist()
    return [(at, samples) for at, (_, samples) in zip(ordered, packets, strict=True)]


def _playout(arrivals: Sequence[tuple[float, int]]) -> Verdict:
    clock = PlayoutClock(HZ)
    for at, samples in arrivals:
        clock.feed(at, samples)
    return clock.close()


# ---------------------------------------------------------------- what it costs
def cost(items: Sequence[tuple[Stream, VoiceModel]]) -> list[Figure]:
    """Processor time for a second of speech, and the share of it that is the event loop's."""
    fed_s = judged_s = total_s = 0.0
    packets = 0
    for one, model in items:
        audit, clock = SpeechAudit(FRAME, HZ, model), PlayoutClock(HZ)
        payloads = [(packet.frames, packet.pcm.tobytes()) for packet in one.packets]
        fed_s += seconds_of(lambda a=audit, c=clock, p=payloads: _feed(a, c, p))
        judged_s += seconds_of(lambda a=audit, o=one: a.close("stop", o.text, o.made))
        judged_s += seconds_of(clock.close)
        total_s += len(one.pcm) / HZ
        packets += len(one.packets)
    asked_s, lag_s, held_s, idle_s = asyncio.run(on_the_loop(items))
    return [
        Figure(
            "cost of a second of speech",
            1e3 * (fed_s + judged_s) / total_s,
            "ms",
            BUDGET_MS,
            f"of it on the event loop {1e3 * fed_s / total_s:.4f} ms",
        ),
        Figure("on the event loop, a packet", 1e6 * fed_s / packets, "us", None, "80 ms of speech"),
        Figure("on the event loop, a verdict", 1e6 * asked_s, "us", None, "asked and written"),
        Figure(
            f"between two ticks of the loop, with a verdict on {LONG_S:.0f} s of speech",
            1e3 * lag_s,
            "ms",
            None,
            f"judged on the loop: {1e3 * held_s:.2f} ms; with none: {1e3 * idle_s:.2f} ms",
        ),
    ]


def _feed(audit: SpeechAudit, clock: PlayoutClock, payloads: list[tuple[int, bytes]]) -> None:
    for number, (frames, pcm) in enumerate(payloads):
        audit.feed(frames, pcm)
        clock.feed(0.04 * number, len(pcm) // 2)


async def on_the_loop(
    items: Sequence[tuple[Stream, VoiceModel]],
) -> tuple[float, float, float, float]:
    """Processor seconds of the loop's own thread for a verdict; then the longest time between two
    ticks of the loop with a verdict made in its thread, made on the loop, and with none. The least
    of twenty: others use the machine too."""
    pcm = np.concatenate([one.pcm for one, _ in items])
    long = speech.stream("word " * 200, np.resize(pcm, round(LONG_S * HZ)))

    def judge() -> Verdict:
        return speech.judge(long, items[0][1])

    verdicts = Verdicts()

    def ask() -> None:
        verdicts.ask("a", {Detector.SPEECH: judge}, lambda _: None)

    began = time.thread_time()
    for _ in range(20):
        ask()
        await verdicts.settled("a")
    asked_s = (time.thread_time() - began) / 20
    ways: list[Callable[[], object]] = [ask, judge, lambda: None]
    lags = [min([await _lag(way) for _ in range(20)]) for way in ways]
    await verdicts.stop()
    return asked_s, lags[0], lags[1], lags[2]


async def _lag(act: Callable[[], object]) -> float:
    ticks = [time.perf_counter()]
    for number in range(100):
        if number == 20:
            act()
        await asyncio.sleep(LOOP_TICKS_S)
        ticks.append(time.perf_counter())
    return max(after - before for before, after in pairwise(ticks))


# ---------------------------------------------------------------- the engine's own speech
def of_the_engine(count: int, cut: int) -> list[Figure]:
    """Whole answers of the tiny checkpoint, and answers under its truncation drill."""
    loaded = checkpoint.load(SHIPPED["tiny-omni-1"])

    def verdicts(of: list[Answered], *, accounts: bool) -> list[Verdict]:
        return [verdict_on(one, loaded.voices[one.voice], accounts=accounts) for one in of]

    clean = verdicts(answers(loaded, count, truncated=False, seed=31), accounts=True)
    wrong = sum(verdict != () and not isinstance(verdict, Abstained) for verdict in clean)
    abstained = sum(isinstance(verdict, Abstained) for verdict in clean)
    drilled = answers(loaded, cut, truncated=True, seed=32)
    told = sum(has(v, Grade.HARD) for v in verdicts(drilled, accounts=True))
    heard = sum(has(v, Grade.HARD) for v in verdicts(drilled, accounts=False))
    return [
        _accused("tiny engine: whole answers accused, soft or hard", wrong, count, abstained),
        _recall("tiny engine: truncation drill", told, cut, 1.0),
        _recall("tiny engine: truncation drill, accounts silenced", heard, cut, 0.95),
    ]


def figures(quick: bool) -> list[Figure]:
    """All of it; `quick` on a tenth of the items."""
    torch.set_num_threads(1)
    count, fitted = (CLEAN_ITEMS // 10, 60) if quick else (CLEAN_ITEMS, 200)
    languages = [spoken(language, count, fitted) for language in Language]
    found = [figure for language in languages for figure in judged(language)]
    items = [item for language in languages for item in language.items[:: 2 if quick else 4]]
    found += played(count // 2)
    found += cost(items)
    return found + of_the_engine(*((12, 6) if quick else (300, 60)))


def main() -> None:
    args = options(__doc__ or "")
    show(figures(args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
