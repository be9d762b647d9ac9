"""The paged cache beside Hugging Face's caches on SmolLM2: bytes a token, speed, and likelihood.

A peer that does not run here says why in its row.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import QuantizedCache

from bench import smollm
from bench.board import Direction, Figure, unmeasured
from bench.models import smol
from bench.paged_text import Ids, PagedText, held_out, pool_bytes, prompt, settings
from bench.peer_kvpress import SHARE, DoesNotRun, measured
from bench.stock_cache import Stock, dynamic
from bench.timing import interleave, ratio
from monitors.contract import KvRung
from runtime.quality.bootstrap import bootstrap

CONTEXT, TAIL = 1024, 128
TEXTS, QUICK_TEXTS = 6, 2
STEPS, QUICK_STEPS = 40, 12
BASELINE = "DynamicCache"
_WHERE = f"SmolLM2, {CONTEXT} tokens"


class Arm(Protocol):
    """One cache, filled with a text."""

    def fill(self, ids: Ids) -> None: ...
    def nats(self, ids: Ids) -> NDArray[np.float64]:
        """Of each token behind the text, `(n,)`."""
        ...

    def step(self) -> object:
        """Decode one token."""
        ...

    def bytes_per_token(self) -> float: ...


def figures(*, quick: bool) -> list[Figure]:
    texts = held_out(smol(), QUICK_TEXTS if quick else TEXTS, CONTEXT + TAIL)
    arms, rows = dict[str, Arm](), list[Figure]()
    for name, make in _ways().items():
        try:
            arms[name] = make()
        except ImportError as err:
            rows.append(unmeasured(f"{name}, SmolLM2", str(err)))
    nats = _dictated(arms, texts)
    rows += _sizes_and_speeds(arms, QUICK_STEPS if quick else STEPS)
    rows += [_lost(name, nats[name], nats[BASELINE]) for name in arms if name != BASELINE]
    return [*rows, *_kvpress(nats[BASELINE])]


def _ways() -> dict[str, Callable[[], Arm]]:
    config = smollm.load()[0].config
    return {
        BASELINE: lambda: Stock(dynamic),
        **{f"{rung.name.lower()} pages": partial(Paged, rung) for rung in KvRung},
        "QuantizedCache, quanto int4": lambda: Stock(lambda: QuantizedCache("quanto", config)),
        "QuantizedCache, fp8": lambda: Stock(lambda: QuantizedCache("fp8", config)),
    }


def _dictated(arms: dict[str, Arm], texts: list[Ids]) -> dict[str, list[float]]:
    """Mean nats of each text's tail, by arm; the last text stays in the caches."""
    nats = {name: list[float]() for name in arms}
    for ids in texts:
        for name, arm in arms.items():
            arm.fill(ids[:CONTEXT])
            nats[name].append(float(arm.nats(ids[CONTEXT:]).mean()))
    return nats


def _sizes_and_speeds(arms: dict[str, Arm], steps: int) -> Iterator[Figure]:
    size = {name: arm.bytes_per_token() for name, arm in arms.items()}
    taken = interleave({name: arm.step for name, arm in arms.items()}, steps)
    for name in arms:
        if name == BASELINE:
            continue
        yield _smaller(name, size[name], size[BASELINE])
        speed = ratio(taken[BASELINE], taken[name])
        yield Figure(
            f"speed of a step: {name}, {_WHERE}", speed.value, "x", None,
            f"{BASELINE}, fp32: {1e3 * np.median(taken[BASELINE]):.1f} ms",
            Direction.AT_LEAST, speed.low, speed.high,
        )  # fmt: skip


def _smaller(name: str, size: float, baseline: float) -> Figure:
    """`baseline` is that of fp32; the figure is against bf16, which takes half."""
    peer = f"{BASELINE}, bf16: {baseline / 2048:.2f} KiB a token; this: {size / 1024:.2f}"
    return Figure(
        f"bytes: {name}, {_WHERE}", baseline / 2 / size, "x less", None, peer, Direction.AT_LEAST
    )


def _lost(name: str, nats: SequenceOf[float], baseline: SequenceOf[float]) -> Figure:
    lost = bootstrap([100 * (a / b - 1) for a, b in zip(nats, baseline, strict=True)])
    return Figure(
        f"NLL lost: {name}, {_WHERE}", lost.value, "%", None,
        f"{BASELINE}, fp32: {np.mean(baseline):.3f} nats a token, {len(nats)} texts",
        Direction.AT_MOST, lost.low, lost.high,
    )  # fmt: skip


def _kvpress(baseline: list[float]) -> Iterator[Figure]:
    name = f"kvpress, {SHARE:.0%} of the tokens dropped"
    try:
        found = measured(len(baseline), CONTEXT, TAIL)
    except DoesNotRun as err:
        reason = f"kvpress does not run here: {err} (0.5.5 asks for transformers < 5.3)"
        yield unmeasured(f"{name}, {_WHERE}", reason)
        return
    whole = _fp32_bytes()
    yield _smaller(name, found["bytes_per_token"], whole)
    yield _lost(name, found["nats"], baseline)


def _fp32_bytes() -> float:
    """A token's K and V in all layers."""
    shape = smol().shape
    return 2.0 * smol().layers * shape.kv_heads * shape.head_dim * shape.dtype.itemsize


class Paged:
    """Ours, in one format."""

    def __init__(self, rung: KvRung) -> None:
        made = settings(smol(), pool_bytes(smol(), CONTEXT + 4 * TAIL))
        self._run = PagedText(smol(), made)
        self._run.kv.set_kv(rung)
        self._sequence = None

    def fill(self, ids: Ids) -> None:
        if self._sequence is not None:
            self._run.kv.close(self._sequence)
        self._sequence = self._run.open(prompt(ids), 3 * TAIL)
        self._last = self._run.prefill(self._sequence)
        self._run.settle()

    def nats(self, ids: Ids) -> NDArray[np.float64]:
        assert self._sequence is not None
        return self._run.dictate(self._sequence, self._last, ids)

    def step(self) -> list[int]:
        assert self._sequence is not None
        return self._run.decode(self._sequence, self._last, 1)

    def bytes_per_token(self) -> float:
        assert self._sequence is not None
        return float(self._run.kv.pool.account().live.sum()) / self._sequence.table.length
