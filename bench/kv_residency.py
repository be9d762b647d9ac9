"""What attention still finds on the device with a fifth of the pages in host memory (S1.4).

The default score against the article's rule, w = 1: the highest entropy goes first.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bench.board import Direction, Figure, unmeasured
from bench.clips import ClipRun, clips
from bench.models import smol
from bench.paged_text import Ids, PagedText, as_modalities, held_out, pool_bytes, prompt, settings
from bench.smollm import WeightsMissing
from runtime.kv.cache import KvCache
from runtime.kv.tiers import TierLimits
from runtime.quality.bootstrap import Estimate, bootstrap

CLIPS, QUICK_CLIPS = 60, 12
TEXTS, QUICK_TEXTS = 8, 2
CONTEXT, TAIL = 1024, 64
TARGET = 95.0  # per cent
ARTICLE = "the article: 92 %"
WEIGHTS = {"default weight": TierLimits().entropy_weight, "w = 1, the article's rule": 1.0}


def figures(*, quick: bool) -> list[Figure]:
    rows = list(_said("tiny, clips of 8 s", _tiny(QUICK_CLIPS if quick else CLIPS)))
    try:
        found = _smol(QUICK_TEXTS if quick else TEXTS)
    except WeightsMissing as err:
        return [*rows, unmeasured("residency, SmolLM2", str(err), target=TARGET)]
    return [*rows, *_said(f"SmolLM2, {CONTEXT} tokens as modalities", found)]


def _said(where: str, found: dict[str, list[float]]) -> Iterator[Figure]:
    default, article = found
    for name, shares in found.items():
        mean = _per_cent(shares)
        other = _per_cent(found[article if name == default else default])
        yield Figure(
            f"residency, 20 % in host memory: {name}, {where}", mean.value, "%",
            TARGET if name == default else None,
            f"{ARTICLE}; {article if name == default else default}: {other.value:.1f} %",
            Direction.AT_LEAST, mean.low, mean.high,
        )  # fmt: skip


def _per_cent(shares: list[float]) -> Estimate:
    return bootstrap([100 * share for share in shares])


def _tiny(count: int) -> dict[str, list[float]]:
    """Residency while the answer is decoded, by rule and clip."""
    run, found = ClipRun(), {}
    for name, weight in WEIGHTS.items():
        found[name] = shares = []
        for sample in clips(count):
            watch = Watch(run.kv, weight)
            run.dictate(sample, between=watch.press)
            shares.append(watch.share())
    return found


def _smol(count: int) -> dict[str, list[float]]:
    model, found = smol(), {name: list[float]() for name in WEIGHTS}
    run = PagedText(model, settings(model, pool_bytes(model, CONTEXT + TAIL), observe_every=1))
    for ids in held_out(model, count, CONTEXT + TAIL):
        for name, weight in WEIGHTS.items():
            found[name].append(_text_share(run, ids, weight))
    return found


def _text_share(run: PagedText, ids: Ids, weight: float) -> float:
    sequence = run.open(prompt(ids[:CONTEXT], as_modalities(CONTEXT)), TAIL)
    run.prefill(sequence, observed=True)
    watch = Watch(run.kv, weight)
    watch.press()
    for token in range(CONTEXT, CONTEXT + TAIL):
        run.feed([(sequence, ids[token : token + 1])])
    run.kv.close(sequence)
    return watch.share()


class Watch:
    """Presses a cache once, and adds up what its steps find from then on."""

    def __init__(self, kv: KvCache[Any], weight: float) -> None:
        self._kv, self._weight = kv, weight
        self._before = (0.0, 0.0)

    def press(self) -> None:
        """One round of pressure: 20 % of the running pages, in one go."""
        tiers, usual = self._kv.tiers, self._kv.tiers.limits
        many = self._kv.pool.arena.books.count * 64
        tiers.limits = replace(
            usual, high=0.0, low=0.0, entropy_weight=self._weight, pages_per_step=many
        )
        moved = self._kv.settle()
        assert moved > 0
        tiers.limits = replace(usual, high=1.0, low=0.0)  # and none comes back
        self._kv.settle()  # now they are there
        self._before = self._masses()

    def share(self) -> float:
        hit, lookup = np.subtract(self._masses(), self._before)
        return float(hit / lookup)

    def _masses(self) -> tuple[float, float]:
        seen = self._kv.residency
        return float(seen.hit.sum()), float(seen.lookup.sum())
