"""Is entropy the right ruler? Low, random and high entropy aliased at equal rates (DESIGN 5).

A block's entry points at the layer below's page where the rule picks it. The rates are shares of
all entries, guarded ones included; the thresholds come from other samples, so that the share
that was really aliased is told with each figure.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.board import Direction, Figure, unmeasured
from bench.clips import ClipRun, clips
from bench.models import shipped, smol, tiny
from bench.paged_text import PagedText, as_modalities, held_out, pool_bytes, prompt, settings
from bench.rules import at_rate, counted, watching
from bench.smollm import WeightsMissing
from runtime.kv.reuse import ReusePolicy, off, upper_layers
from runtime.quality.bootstrap import bootstrap, difference
from runtime.quality.policies import Tally

RATES = {"tiny": (0.05, 0.10), "SmolLM2-135M": (0.10, 0.20)}
CLIPS, QUICK_CLIPS = 90, 15
TEXTS, QUICK_TEXTS = 6, 2
CALIBRATION, CALIBRATION_TEXTS = 15, 1
CONTEXT, TAIL = 1024, 128


@dataclass(frozen=True)
class Outcome:
    """Of each sample: mean nats, and whether the answer was right (`None` where there is none).
    `entries`: all (layer, block) entries of their tables."""

    nats: list[float]
    exact: list[bool] | None
    entries: int


Run = Callable[[ReusePolicy, bool], Outcome]  # under a policy; True: on the calibration's samples


def figures(*, quick: bool) -> list[Figure]:
    layers = upper_layers(tiny().layers, shipped().config.talker_config.accept_hidden_layer)
    rows = list(_compared("tiny", layers, partial(_clips, QUICK_CLIPS if quick else CLIPS), quick))
    try:
        free = upper_layers(smol().layers, None)
        texts = partial(_texts, QUICK_TEXTS if quick else TEXTS)
        return [*rows, *_compared(smol().name, free, texts, quick)]
    except WeightsMissing as err:
        return [*rows, unmeasured("low, random, high entropy: SmolLM2", str(err))]


def _compared(model: str, layers: Sequence[int], run: Run, quick: bool) -> Iterator[Figure]:
    """Three rules at each rate (quick: at the first), against no reuse at all."""
    policy, tally = watching(layers)
    entries = run(policy, True).entries
    may = len(tally.seen) / entries
    untouched = run(off("baseline"), False)
    for rate in RATES[model][:1] if quick else RATES[model]:
        if rate > may:
            reason = f"only {may:.0%} of the entries may alias at all"
            yield unmeasured(f"{model}, {rate:.0%} of entries aliased", reason)
            continue
        for name, rule in at_rate(rate / may, tally.seen).items():
            policy, counts = counted(rule, layers)
            yield from _said(name, model, run(policy, False), untouched, counts)


def _said(rule: str, model: str, found: Outcome, before: Outcome, tally: Tally) -> Iterator[Figure]:
    share = 100 * tally.aliased / found.entries
    bar = f"{model}, {share:.1f} % of entries aliased, {rule}"
    cost = bootstrap([a - b for a, b in zip(found.nats, before.nats, strict=True)])
    yield Figure(
        f"nats lost: {bar}", cost.value, "nats a token", None,
        f"no reuse: {np.mean(before.nats):.4f}; {len(found.nats)} samples",
        Direction.AT_MOST, cost.low, cost.high,
    )  # fmt: skip
    if found.exact is not None and before.exact is not None:
        change = difference(before.exact, found.exact)
        yield Figure(
            f"exact match lost: {bar}", 0.0 - 100 * change.value, "points", None,
            f"no reuse: {100 * np.mean(before.exact):.1f} % right",
            Direction.AT_MOST, -100 * change.high, -100 * change.low,
        )  # fmt: skip


def _clips(count: int, policy: ReusePolicy, calibrating: bool) -> Outcome:
    samples = clips(CALIBRATION, seed=1) if calibrating else clips(count)
    run = ClipRun(policy)
    heard = [run.dictate(sample) for sample in samples]
    return Outcome([h.nats for h in heard], [h.exact for h in heard], run.entries)


def _texts(count: int, policy: ReusePolicy, calibrating: bool) -> Outcome:
    """One text cut into stretches that are called modalities; the model never saw sharing."""
    model, length = smol(), CONTEXT + TAIL
    texts = held_out(model, count + CALIBRATION_TEXTS, length)
    run = PagedText(model, settings(model, pool_bytes(model, length), reuse=policy))
    nats, entries = list[float](), 0
    for ids in texts[count:] if calibrating else texts[:count]:
        sequence = run.open(prompt(ids[:CONTEXT], as_modalities(CONTEXT)), TAIL)
        nats.append(float(run.dictate(sequence, run.prefill(sequence), ids[CONTEXT:]).mean()))
        entries += model.layers * len(sequence.table.blocks)
        run.kv.close(sequence)
    return Outcome(nats, None, entries)
