"""What attention still finds on the device with a fifth of the pages in host memory (S1.4).

The default score against the article's rule, w = 1 (the highest entropy goes first), and against
an oracle: the pages that the answer really looks at least.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bench.board import Direction, Figure, unmeasured
from bench.clips import ClipRun, clips
from bench.models import smol
from bench.paged_text import Ids, PagedText, as_modalities, held_out, pool_bytes, prompt, settings
from bench.smollm import WeightsMissing
from runtime.kv.cache import KvCache
from runtime.kv.residency import Mass
from runtime.kv.sequence import Sequence
from runtime.kv.tiers import TierLimits
from runtime.model import checkpoint
from runtime.model.shipped import SHIPPED
from runtime.quality.bootstrap import Estimate, bootstrap

CLIPS, QUICK_CLIPS = 60, 12
BEFORE, OTHER_SEED = 24, 1  # clips that the resident has answered already
TEXTS, QUICK_TEXTS = 8, 2
CONTEXT, TAIL = 1024, 64
TARGET = 95.0  # per cent
ARTICLE = "the article: 92 %"
WEIGHTS = {"default weight": TierLimits().entropy_weight, "w = 1, the article's rule": 1.0}
ORACLE = "oracle"

Shares = dict[str, list[float]]
Act = Callable[[], None]


def figures(*, quick: bool) -> list[Figure]:
    count = QUICK_CLIPS if quick else CLIPS
    rows = [*_said("tiny, clips of 8 s", _tiny(count)), _overlap(count)]
    try:
        found = _smol(QUICK_TEXTS if quick else TEXTS)
    except WeightsMissing as err:
        return [*rows, unmeasured("residency, SmolLM2", str(err), target=TARGET)]
    return [*rows, *_said(f"SmolLM2, {CONTEXT} tokens as modalities", found)]


def _said(where: str, found: Shares) -> Iterator[Figure]:
    default, article = WEIGHTS
    oracle = _per_cent(found[ORACLE]).value
    for name in WEIGHTS:
        mean = _per_cent(found[name])
        other = article if name == default else default
        yield Figure(
            f"residency, 20 % in host memory: {name}, {where}", mean.value, "%",
            TARGET if name == default else None,
            f"{ARTICLE}; {other}: {_per_cent(found[other]).value:.1f} %;"
            f" knowing what the answer will look at: {oracle:.1f} %",
            Direction.AT_LEAST, mean.low, mean.high,
        )  # fmt: skip


def _per_cent(shares: list[float]) -> Estimate:
    return bootstrap([100 * share for share in shares])


def _overlap(count: int) -> Figure:
    """What the same fifth costs where it is brought a layer ahead of attention."""
    bar = "residency with host pages brought one layer ahead"
    if not torch.cuda.is_available():
        return unmeasured(bar, "needs CUDA: on a CPU nothing overlaps", target=TARGET)
    run = ClipRun(loaded=checkpoint.load(next(iter(SHIPPED.values())), "cuda"))
    shares = []
    for sample in clips(count):
        watch = Watch(run.kv)
        run.dictate(sample, between=partial(watch.press, TierLimits().entropy_weight))
        shares.append(watch.share())
    mean = _per_cent(shares)
    return Figure(bar, mean.value, "%", TARGET, ARTICLE, Direction.AT_LEAST, mean.low, mean.high)


# ---------------------------------------------------------------- the two models
def _tiny(count: int) -> Shares:
    """Residency while the answer is decoded, by rule and clip."""
    run = ClipRun()
    for sample in clips(BEFORE, seed=OTHER_SEED):
        run.dictate(sample)
    found: Shares = {name: [] for name in (*WEIGHTS, ORACLE)}
    for sample in clips(count):

        def answer(act: Callable[[Sequence], None], sample: Any = sample) -> Sequence:
            run.dictate(sample, between=lambda: act(_some(run.sequence)))
            return _some(run.sequence)

        _compare(run.kv, answer, found)
    return found


def _smol(count: int) -> Shares:
    model = smol()
    run = PagedText(model, settings(model, pool_bytes(model, CONTEXT + TAIL), observe_every=1))
    found: Shares = {name: [] for name in (*WEIGHTS, ORACLE)}
    for ids in held_out(model, count, CONTEXT + TAIL):
        _compare(run.kv, lambda act, ids=ids: _dictated(run, ids, act), found)
    return found


def _dictated(run: PagedText, ids: Ids, act: Callable[[Sequence], None]) -> Sequence:
    sequence = run.open(prompt(ids[:CONTEXT], as_modalities(CONTEXT)), TAIL)
    run.prefill(sequence, observed=True)
    act(sequence)
    for token in range(CONTEXT, CONTEXT + TAIL):
        run.feed([(sequence, ids[token : token + 1])])
    run.kv.close(sequence)
    return sequence


def _some(sequence: Sequence | None) -> Sequence:
    assert sequence is not None
    return sequence


# ---------------------------------------------------------------- the rules
def _compare(
    kv: KvCache[Any], answer: Callable[[Callable[[Sequence], None]], Sequence], found: Shares
) -> None:
    """`answer(act)` runs one request, with `act` on its sequence behind the prompt."""
    for name, weight in WEIGHTS.items():
        watch = Watch(kv)
        answer(lambda _, watch=watch, weight=weight: watch.press(weight))
        found[name].append(watch.share())
    watch, paid = Watch(kv), Paid()
    sequence = answer(paid.start)
    known = paid.by(sequence)
    answer(lambda sequence: watch.offload(sequence, known))
    found[ORACLE].append(watch.share())


class Paid:
    """The attention that an answer pays to each block of its prompt, by layer."""

    def start(self, sequence: Sequence) -> None:
        self._blocks = sequence.table.complete()
        self._before = sequence.table.received.mass(self._blocks).copy()

    def by(self, sequence: Sequence) -> Mass:
        """`(layers, blocks)`."""
        return (sequence.table.received.mass(self._blocks) - self._before).astype(np.float64)


class Watch:
    """Presses a cache once, and adds up what its steps find from then on."""

    def __init__(self, kv: KvCache[Any]) -> None:
        self._kv = kv
        self._before = (0.0, 0.0)

    def press(self, weight: float) -> None:
        """One round of pressure: 20 % of the running pages, in one go."""
        tiers, usual = self._kv.tiers, self._kv.tiers.limits
        many = self._kv.pool.arena.books.count * 64
        tiers.limits = replace(
            usual, high=0.0, low=0.0, entropy_weight=weight, blocks_per_step=many
        )
        moved = self._kv.settle()
        assert moved > 0
        tiers.limits = replace(usual, high=1.0, low=0.0)  # and none comes back
        self._kv.settle()  # now they are there
        self._before = self._masses()

    def offload(self, sequence: Sequence, known: Mass) -> None:
        """As many pages as `press` moves: those of least `known` attention."""
        pages = sequence.table.matrix()[:, 1 : known.shape[1]].ravel()
        many = int(np.ceil(self._kv.tiers.limits.share * len(pages)))
        moved = self._kv.pool.moves.offload(pages[np.argsort(known[:, 1:].ravel())[:many]])
        assert moved == many
        self._before = self._masses()

    def share(self) -> float:
        hit, lookup = np.subtract(self._masses(), self._before)
        return float(hit / lookup)

    def _masses(self) -> tuple[float, float]:
        seen = self._kv.residency
        return float(seen.hit.sum()), float(seen.lookup.sum())
