"""Peak KV bytes against a bf16 cache at the same quality (S1.5: 87 -> 23 GB, 3.78 times fewer).

Attention unpacks a layer at a time into scratch, which is not kept and not counted; what
`DynamicCache` takes while it grows is not counted either.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bench.bases import learned
from bench.board import Figure, unmeasured
from bench.kv_bytes import BAR, Held, held, said
from bench.models import TextModel, shipped, smol
from bench.paged_text import Ids, PagedText, held_out, pool_bytes, prompt, settings
from bench.smollm import WeightsMissing
from monitors.contract import KvRung
from monitors.redlines import RedLines
from monitors.rungs import RUNGS
from runtime.engine.build import EngineSettings
from runtime.kv.cache import KvCache
from runtime.kv.formats import Format
from runtime.kv.sequence import Sequence
from runtime.kv.subspace import Subspace
from runtime.media.fidelity import fidelity_of
from runtime.quality.asking import ask
from runtime.quality.bootstrap import bootstrap
from runtime.quality.evaluate import evaluate
from runtime.quality.held_out import draw
from runtime.quality.likelihood import Likelihood
from runtime.quality.plan import KvPolicy, Plan
from runtime.quality.policies import policy_of
from runtime.quality.score import ALL, compare
from runtime.quality.tasks import Kind

KINDS = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS)
COUNT, QUICK_COUNT = 200, 10  # of each task
TOGETHER = 16  # clips in the cache at once
SECONDS = (8, 16)  # of a clip
ANSWER_TOKENS = 64
CONTEXT, TAIL, TEXTS = 2048, 512, 8
QUICK_TAIL, QUICK_TEXTS = 64, 2
BITS = (2.83, 3.25, 3.5)


def figures(*, quick: bool) -> list[Figure]:
    lengths, count = (SECONDS[:1], QUICK_COUNT) if quick else (SECONDS, COUNT)
    rows = [figure for seconds in lengths for figure in _of_clips(seconds, count)]
    try:
        return [*rows, *_of_texts(smol(), quick=quick)]
    except WeightsMissing as err:
        return [*rows, unmeasured("peak KV bytes, SmolLM2-135M", str(err))]


# ---------------------------------------------------------------- the shipped checkpoint, on clips
def _of_clips(seconds: int, count: int) -> Iterator[Figure]:
    plan = Plan(KINDS, KvPolicy.named("native"), seconds=seconds, count=count)
    before = evaluate(shipped(), plan)
    for name in ("int4", "subspace", "checkpoint+subspace"):
        policy = KvPolicy.named(name)
        after = evaluate(shipped(), replace(plan, policy=policy))
        lost = next(d.exact for d in compare(before, after) if d.task == ALL)
        low, high = -100 * lost.high, -100 * lost.low
        cost = f"exact match lost: {-100 * lost.value:.2f} [{low:.2f}, {high:.2f}] points"
        what = f"tiny, clips of {seconds} s, {name}"
        bar = BAR if policy.storage is Format.SUBSPACE else None
        together = _clips(policy, seconds, TOGETHER)
        yield said(f"{what}, {TOGETHER} at once", together, cost, target=bar)
        alone = _clips(policy, seconds, 1)
        yield said(f"{what}, one alone", alone, "the bases weigh on one alone", target=None)


def _clips(policy: KvPolicy, seconds: int, count: int) -> Held:
    """Where the answers about `count` clips, all in the cache, have ended."""
    open_now: list[Sequence] = []
    found: list[Held] = []

    def ended(cache: KvCache[Any], sequence: Sequence) -> None:
        open_now.append(sequence)
        if len(open_now) == count:
            found.append(held(cache, open_now))

    made = EngineSettings(
        name="bench",
        version="",
        pool_bytes=64_000_000,
        reuse=policy_of(shipped(), policy.reuse, RedLines(), (), 0),
        storage=policy.storage,
        page_dtype=torch.bfloat16,
    )
    fidelity = fidelity_of(RUNGS[0].media, RedLines().ladder)
    samples = [draw(KINDS[n % len(KINDS)], seconds, n, seed=1) for n in range(count)]
    asked = [ask(s, fidelity, ANSWER_TOKENS, "ethan", speech=False) for s in samples]
    likelihood = Likelihood(shipped(), made, KvRung.NATIVE, ended)
    likelihood.dictate([(one.generate, one.arrays, one.right) for one in asked])
    return found[0]


# ---------------------------------------------------------------- real weights, on prose
def _of_texts(model: TextModel, *, quick: bool) -> Iterator[Figure]:
    tail, count = (QUICK_TAIL, QUICK_TEXTS) if quick else (TAIL, TEXTS)
    texts = held_out(model, count, CONTEXT + tail)
    fit = learned(model)
    before, _ = dictated(model, texts, Format.NATIVE)
    arms: list[tuple[str, Format, Subspace | None]] = [("int4", Format.INT4, None)]
    arms += [
        (f"subspace, {bits} bits", Format.SUBSPACE, fit.fit(bits, model.rotary)) for bits in BITS
    ]
    for name, storage, subspace in arms[-1:] if quick else arms:
        after, found = dictated(model, texts, storage, subspace)
        lost = bootstrap((after - before).mean(1) / before.mean())
        cost = f"NLL lost: {100 * lost.value:.2f} [{100 * lost.low:.2f}, {100 * lost.high:.2f}] %"
        what = f"{model.name}, {count} texts of {CONTEXT + tail} tokens, {name}"
        yield said(what, found, cost, target=None if subspace is None else BAR)


def dictated(
    model: TextModel, texts: list[Ids], storage: Format, subspace: Subspace | None = None
) -> tuple[np.ndarray, Held]:
    """Nats `(texts, tail)` behind CONTEXT tokens each, all texts in the cache together."""
    shape = replace(model.shape, dtype=torch.bfloat16, read_as=model.shape.dtype)
    room = pool_bytes(model, *(len(ids) for ids in texts))
    run = PagedText(model, settings(model, room, shape=shape, storage=storage, subspace=subspace))
    opened = [run.open(prompt(ids[:CONTEXT]), len(ids) - CONTEXT) for ids in texts]
    nats = [
        run.dictate(sequence, run.prefill(sequence), ids[CONTEXT:])
        for sequence, ids in zip(opened, texts, strict=True)
    ]
    return np.stack(nats), held(run.kv, opened)
