"""A known prefix restored against prefilled again: an 8 s clip, and 2,000 tokens of text."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.board import Direction, Figure, unmeasured
from bench.clips import asking, clips
from bench.models import shipped, smol
from bench.paged_text import PagedText, held_out, pool_bytes, prompt, settings
from bench.smollm import WeightsMissing
from bench.timing import ratio, seconds_of
from runtime.engine.build import EngineSettings
from runtime.engine.engine import Engine
from runtime.quality.held_out import Sample
from runtime.quality.tasks import WORDINGS, Question
from runtime.residents.port import Failed, TextDelta

CLIPS, QUICK_CLIPS = 30, 8
TEXTS, QUICK_TEXTS = 5, 2
CONTEXT, QUESTION = 2048, 16
TIMES = 5.0
POOL_BYTES = 256_000_000


@dataclass(frozen=True)
class FirstToken:
    """Seconds: `work` of the engine's steps alone, `whole` with the prompt made from the media."""

    work: float
    whole: float


def figures(*, quick: bool) -> list[Figure]:
    rows = list(_clips(QUICK_CLIPS if quick else CLIPS))
    try:
        return [*rows, _text(QUICK_TEXTS if quick else TEXTS)]
    except WeightsMissing as err:
        return [*rows, unmeasured("prefix restored, SmolLM2", str(err), target=TIMES)]


def _clips(count: int) -> Iterator[Figure]:
    """Each clip cold, then with another question; turn by turn on one engine."""
    engine = Engine(
        shipped(),
        EngineSettings(name="bench", version="", pool_bytes=POOL_BYTES),
        clock=time.perf_counter,
        die=_never,
    )
    _first_token(engine, clips(1, seed=1)[0], "warm-up")
    cold, warm = list[FirstToken](), list[FirstToken]()
    for sample in clips(count):
        cold.append(_first_token(engine, sample, "cold"))
        warm.append(_first_token(engine, _asked_anew(sample), "warm"))
    bar = "clip of 8 s restored: engine's work to the first token"
    yield _said(bar, *([one.work for one in ones] for ones in (cold, warm)))
    bar = "clip of 8 s restored: first token, media to prompt included"
    yield _said(bar, *([one.whole for one in ones] for ones in (cold, warm)), target=None)


def _said(
    bar: str, cold: Sequence[float], warm: Sequence[float], *, target: float | None = TIMES
) -> Figure:
    gain = ratio(np.array(cold), np.array(warm))
    peer = f"prefill: {1e3 * np.median(cold):.1f} ms, restored: {1e3 * np.median(warm):.1f} ms"
    return Figure(bar, gain.value, "x", target, peer, Direction.AT_LEAST, gain.low, gain.high)


def _asked_anew(sample: Sample) -> Sample:
    """The same media, and the next wording of its question."""
    old = sample.question
    words = WORDINGS[old.kind]
    text = words[(words.index(old.text) + 1) % len(words)]
    return Sample(sample.name, sample.number, Question(old.kind, text, old.answer), sample.media)


def _first_token(engine: Engine, sample: Sample, turn: str) -> FirstToken:
    """From the request to its first text; it is cancelled there."""
    asked, arrays = asking(sample, write=True)
    began = time.perf_counter()
    engine.submit(asked, arrays)
    taken_in = time.perf_counter()
    while True:
        events = engine.step()
        assert not any(isinstance(event, Failed) for event in events), (turn, events)
        if any(isinstance(event, TextDelta) for event in events):
            break
    now = time.perf_counter()
    engine.cancel(asked.request_id)
    engine.step()
    return FirstToken(now - taken_in, now - began)


def _never() -> None:
    raise AssertionError("no drill runs in a bench")


def _text(count: int) -> Figure:
    """A text prefilled with its question, then another question behind the same text."""
    model, length = smol(), CONTEXT + QUESTION
    texts = held_out(model, count + 1, length + QUESTION)
    run = PagedText(model, settings(model, pool_bytes(model, *(2 * length for _ in texts))))
    cold, warm = list[float](), list[float]()
    for ids in texts:
        other = np.concatenate([ids[:CONTEXT], ids[length:]])
        cold.append(seconds_of(lambda ids=ids: _answer(run, ids[:length])))
        warm.append(seconds_of(lambda other=other: _answer(run, other)))
    bar = f"SmolLM2, {CONTEXT} tokens restored: first token behind {QUESTION} new ones"
    return _said(bar, cold[1:], warm[1:])


def _answer(run: PagedText, ids: np.ndarray) -> None:
    sequence = run.open(prompt(ids), 1, write=True)
    run.model.logits(run.prefill(sequence)).argmax(-1)
    run.kv.close(sequence)
