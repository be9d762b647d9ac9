"""Rollback: how soon after the evidence of a breach all is on B, and what is left of A then."""

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.board import Figure, options, show
from bench.rollback_load import (
    Load,
    Rolled,
    Stand,
    hits_across_epochs,
    standing,
    started_on_a_after,
)
from rollout.plan import Cause

CLIENTS, MOST_TOKENS = 6, 25
RANDOM, QUICK_RANDOM = 200, 12
IDLE, QUICK_IDLE = 40, 5
TO_B_S, TO_PROOF_S = 0.3, 1.0
PEER = "Argo Rollouts, Flagger: an analysis interval, 10 s at best (documented, not measured)"


def figures(*, quick: bool) -> list[Figure]:
    """The way to B under load and of an idle A; what must never happen, over all of them."""
    return asyncio.run(_figures(QUICK_RANDOM if quick else RANDOM, QUICK_IDLE if quick else IDLE))


async def _figures(many: int, idle: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        async with standing(Path(folder)) as stand:
            load = Load(stand.gateway, random.Random(7))
            rolled = await under_load(stand, load, many)
            alone = await of_an_idle_a(stand, load, idle)
    late, asked = started_on_a_after(rolled + alone, load.sent)
    across, hits = hits_across_epochs(stand.evidence, load.sent)
    called = [each for each in rolled if each.cause is not Cause.OPERATOR]
    causes = ", ".join(f"{sum(r.cause is c for r in rolled)} {c}" for c in Cause)
    streams = sum(each.in_flight > 0 for each in rolled)
    return [
        _quantile("breach in evidence to all new requests on B, under load: p99", TO_B_S,
                  [each.on_stable - each.breach for each in called],
                  f"to the decision {_p50([r.decided - r.breach for r in called]):.3f}; {PEER}"),
        _quantile("the same, A idle: p99", TO_B_S, [r.on_stable - r.breach for r in alone], ""),
        _quantile("breach in evidence to verified flush, A idle: p99", TO_PROOF_S,
                  [each.verified - each.breach for each in alone], "none verifies"),
        _quantile("how late the machine itself woke this process meanwhile: p99", None,
                  stand.lags, "a step to B has about six such waits"),
        Figure("requests started on A after the acknowledgement", late, "", 0,
               f"of {asked:,} sent; {len(rolled)} random rollbacks under load: {causes}; "
               f"{streams} with streams of A in flight"),
        Figure("cache hits across epochs", across, "", 0, f"of {hits:,} hits on A"),
    ]  # fmt: skip


async def under_load(
    stand: Stand, load: Load, many: int, most_s: float = float("inf")
) -> list[Rolled]:
    """So many rollbacks of random causes at random moments; fewer where the time is up."""
    clients = [asyncio.create_task(load.keep_asking(MOST_TOKENS)) for _ in range(CLIENTS)]
    draw, rolled, began = random.Random(11), list[Rolled](), time.monotonic()
    try:
        while len(rolled) < many and time.monotonic() - began < most_s:
            cause = draw.choice(list(Cause))
            rolled.append(await stand.roll_back(cause, load, draw.uniform(0.0, 0.3)))
            if broken := [task for task in clients if task.done()]:
                broken[0].result()  # raises what ended a client
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return rolled


async def of_an_idle_a(stand: Stand, load: Load, many: int) -> list[Rolled]:
    """One client that asks one short thing after the other: at the breach nothing else is there."""
    client = asyncio.create_task(load.keep_asking(2))
    try:
        return [await stand.roll_back(Cause.FAULTS, load, 0.1) for _ in range(many)]
    finally:
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)


def _quantile(bar: str, most_s: float | None, taken: Sequence[float], peer: str) -> Figure:
    """The p99, with the 95 % percentile interval of it."""
    rng = np.random.default_rng(3)
    drawn = [_p99(rng.choice(taken, len(taken)).tolist()) for _ in range(2_000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    words = f"n {len(taken)}; p50 {_p50(taken):.3f}, most {max(taken):.3f} s"
    said = f"{words}; {peer}" if peer else words
    return Figure(bar, _p99(taken), "s", most_s, said, low=float(low), high=float(high))


def _p50(values: Sequence[float]) -> float:
    return float(np.median(values))


def _p99(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99, method="inverted_cdf"))


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
