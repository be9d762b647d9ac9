"""Decode speed over the paged cache: against recomputing without one, and against native pages.

The article's "72 x faster" names no baseline (S1.5); here both are named, context by context.
"""

from collections.abc import Iterator

import numpy as np
import torch

from bench.bases import bases
from bench.board import Direction, Figure
from bench.models import TextModel, on_both
from bench.paged_text import PagedText, held_out, pool_bytes, prompt, settings
from bench.timing import Seconds, interleave, ratio, seconds_of
from runtime.kv.formats import Format
from runtime.kv.sequence import Sequence

CONTEXTS = {"tiny": (512, 4096, 16_384), "SmolLM2-135M": (512, 2048, 8000)}
QUICK_CONTEXTS = (512, 2048)
STEPS, QUICK_STEPS = 40, 15
RECOMPUTED = 3  # whole texts computed again, at most; one where it takes longest


def figures(*, quick: bool) -> list[Figure]:
    return on_both("decode speed", lambda model: _of(model, quick=quick))


def _of(model: TextModel, *, quick: bool) -> Iterator[Figure]:
    contexts = QUICK_CONTEXTS if quick else CONTEXTS[model.name]
    steps = QUICK_STEPS if quick else STEPS
    longest = contexts[-1] + len(contexts) * 2 * steps
    arms = {form: Arm(model, form, longest) for form in Format}
    for context in contexts:
        for arm in arms.values():
            arm.reach(context)
        taken = interleave({form.name: arm.step for form, arm in arms.items()}, steps)
        yield from _said(model, context, taken, quick=quick)


class Arm:
    """One sequence in one format, which grows from context to context."""

    def __init__(self, model: TextModel, storage: Format, longest: int) -> None:
        room = pool_bytes(model, longest)
        subspace = bases(model) if storage is Format.SUBSPACE else None
        self._run = PagedText(model, settings(model, room, storage=storage, subspace=subspace))
        (self._ids,) = held_out(model, 1, longest)
        self._sequence: Sequence = self._run.open(prompt(self._ids), max_new=1)

    def reach(self, context: int) -> None:
        """Prefill up to `context` tokens, and settle in the format."""
        while self._sequence.table.length < context:
            self._feed(min(256, context - self._sequence.table.length))
            self._run.kv.settle()
        self._run.settle()

    def step(self) -> None:
        """One token, dictated: decoding costs the same whatever it says."""
        hidden = self._feed(1)
        self._run.model.logits(hidden).argmax(-1)
        self._run.kv.settle()

    def _feed(self, count: int) -> torch.Tensor:
        at = self._sequence.table.length
        (hidden,) = self._run.feed([(self._sequence, self._ids[at : at + count])])
        return hidden[-1:]


def _said(
    model: TextModel, context: int, taken: dict[str, Seconds], *, quick: bool
) -> Iterator[Figure]:
    where = f"{model.name}, {context} tokens"
    native = taken[Format.NATIVE.name]
    again = _recompute(model, context, 1 if quick else RECOMPUTED)
    for name, seconds in taken.items():
        milliseconds = 1e3 * float(np.median(seconds))
        gain = ratio(np.resize(again, len(seconds)), seconds)
        yield Figure(
            f"decode, {name.lower()} pages, over no cache: {where}", gain.value, "x", None,
            f"the whole text again for each token: {np.median(again):.3f} s;"
            f" a step here: {milliseconds:.1f} ms",
            Direction.AT_LEAST, gain.low, gain.high,
        )  # fmt: skip
        if name != Format.NATIVE.name:
            gain = ratio(native, seconds)
            yield Figure(
                f"decode, {name.lower()} over native pages: {where}", gain.value, "x", None,
                f"unquantised pages: {1e3 * np.median(native):.1f} ms a step",
                Direction.AT_LEAST, gain.low, gain.high,
            )  # fmt: skip


def _recompute(model: TextModel, context: int, times: int) -> Seconds:
    """Seconds of the last token's logits with no cache at all, `(times,)`."""
    (ids,) = held_out(model, 1, context)
    text = torch.from_numpy(ids)
    return np.array(
        [seconds_of(lambda: model.logits(model.dense(text)[-1:])) for _ in range(times)]
    )
