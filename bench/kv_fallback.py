"""What a decode step loses while a full, live pool turns to int8 under it (S4.1).

The stall is what moving pages adds to a step. Attention over pages that are int8 already is
slower by itself on a CPU (`kv_speed`), turning or not: it is told beside the stall.
"""

from collections.abc import Iterator

import numpy as np

from bench.board import Figure
from bench.models import TextModel, on_both
from bench.paged_text import PagedText, held_out, pool_bytes, prompt, settings
from bench.timing import Seconds, seconds_of
from monitors.contract import KvRung
from runtime.kv.sequence import Sequence
from runtime.kv.tiers import TierLimits

BATCH = 8
CONTEXT, QUICK_CONTEXT = 512, 256
PLAIN = 30  # steps, for the yardstick and before the order
ROOM = 192  # tokens that each sequence may grow by: little, so that the pool is nearly full
NEVER = TierLimits(high=1.0, low=0.0)  # the order alone moves pages, not pressure
TIGHT = 1.02
STALL = 1.0  # of a plain step


def figures(*, quick: bool) -> list[Figure]:
    context = QUICK_CONTEXT if quick else CONTEXT
    return on_both("fallback", lambda model: _of(model, context))


def _of(model: TextModel, context: int) -> Iterator[Figure]:
    batch = Batch(model, context)
    plain = np.array([batch.step() for _ in range(PLAIN)]).sum(1)
    live = batch.run.kv.pool.live_share()
    ordered = batch.run.kv.set_kv(KvRung.INT8)
    turning = batch.until_settled()
    usual = float(np.median(plain))
    added = turning.sum(1) / usual - 1.0
    where = (
        f"{model.name}, {BATCH} x {context} tokens, pool {live:.0%} live,"
        f" {ordered} pages in {len(turning)} steps"
    )
    noise = float(plain.max()) / usual - 1.0
    peer = f"a plain step: {1e3 * usual:.1f} ms, and at worst {noise:.2f} steps more"
    moved = turning[:, 1] / usual
    yield Figure(
        f"fallback stall, worst: {where}", float(moved.max()), "steps", STALL,
        f"median {np.median(moved):.2f}; {peer}",
    )  # fmt: skip
    yield Figure(
        f"a step while the pool turns, over a plain one, worst: {where}",
        float(added.max()), "steps", None, "with attention over pages that are int8 by now",
    )  # fmt: skip


class Batch:
    """Sequences that fill their pool and decode together."""

    def __init__(self, model: TextModel, context: int) -> None:
        room = pool_bytes(model, *(context + ROOM for _ in range(BATCH)), slack=TIGHT)
        self.run = PagedText(model, settings(model, room, limits=NEVER))
        self._texts = held_out(model, BATCH, context + ROOM)
        self._open: list[Sequence] = []
        for ids in self._texts:
            sequence = self.run.open(prompt(ids[:context]), ROOM)
            self.run.prefill(sequence)
            self._open.append(sequence)

    def step(self) -> tuple[float, float]:
        """One token each: seconds of the forward, and of the cache's settling behind it."""
        return seconds_of(self._decode), seconds_of(self.run.kv.settle)

    def until_settled(self) -> Seconds:
        """`(steps, 2)`, from the order until nothing is left to turn."""
        taken = [self.step()]
        while len(self.run.kv.tiers.unquantised()):
            taken.append(self.step())
        return np.array(taken)

    def _decode(self) -> None:
        at = [sequence.table.length for sequence in self._open]
        work = [
            (sequence, ids[n : n + 1])
            for sequence, ids, n in zip(self._open, self._texts, at, strict=True)
        ]
        for hidden in self.run.feed(work):
            self.run.model.logits(hidden).argmax(-1)
