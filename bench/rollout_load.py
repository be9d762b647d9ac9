"""What B's answers suffer while A loads another model beside it: interleaved runs with and without.

A gateway with two engines of the checkpoints that ship, as `redline up` runs them. In each round B
answers the same spoken questions one after the other, once while A loads a model and once while
nothing loads, in an order that alternates. The ratio is of the p95 of the first audio packet over
all rounds; its bounds resample whole rounds, so that what the machine did meanwhile stays together.
"""

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bench.board import Figure, options, show
from monitors.contract import MilestoneReached
from monitors.labels import Milestone
from monitors.preparing import LoadStage
from runtime.model.shipped import SHIPPED
from runtime.residents.local import WORKER
from runtime.settings import ResidentSpec
from tests.support.gateway import A, B, Gateway, running_gateway, settings_for, until
from tests.support.task_clips import task_clip

BAR = 1.25  # the upper 95 % bound of the ratio
LEAST_REQUESTS, MOST_REQUESTS = 40, 200  # of a round without a load, however long that takes
CLIPS = 8
THINK_S = 0.05  # between an answer and the next question
LOAD_TIMEOUT_S = 600.0
RESAMPLES = 2_000


@dataclass(frozen=True)
class Round:
    """First audio packets on B, seconds, and how long the load took."""

    loading: list[float]
    quiet: list[float]
    load_s: float


@cache
def _clip(number: int) -> bytes:
    return task_clip(2, number % CLIPS)[1]


async def _asked(gateway: Gateway, number: int) -> None:
    """A spoken answer about one of a few clips, the same ones in both arms."""
    answer = await gateway.ask_about(_clip(number), "Which digits do you hear?")
    if answer.status_code != 200:
        raise RuntimeError(f"B did not answer: {answer.text}")
    await asyncio.sleep(THINK_S)


def _packets(gateway: Gateway, since: int) -> list[float]:
    gateway.since = since
    bodies = [entry.body for entry in gateway.bodies("milestone", B)]
    return [
        body.seconds
        for body in bodies
        if isinstance(body, MilestoneReached) and body.milestone is Milestone.FIRST_AUDIO_PACKET
    ]


async def _while_loading(gateway: Gateway, model: Path, number: int) -> tuple[list[float], float]:
    """Ask until the model is in, and at least so often; only what came meanwhile counts."""
    since, began, asked = gateway.plane.book.evidence.newest_seq, time.monotonic(), 0
    body = {"load": f"l{number}", "checkpoint": str(model), "version": model.name}
    answer = await gateway.led("POST", f"/residents/{A}/load", **body)
    if answer.status_code != 200:
        raise RuntimeError(f"the load is refused: {answer.text}")
    while not _ended(gateway):
        await _asked(gateway, asked)
        asked += 1
        if time.monotonic() - began > LOAD_TIMEOUT_S:
            raise RuntimeError("the load did not end")
    loading = gateway.plane.loading(A)
    if loading is None or loading.stage is not LoadStage.LOADED:
        raise RuntimeError(f"the load failed: {loading}")
    return _packets(gateway, since), time.monotonic() - began


def _ended(gateway: Gateway) -> bool:
    loading = gateway.plane.loading(A)
    return loading is not None and loading.stage in (LoadStage.LOADED, LoadStage.REFUSED)


async def _while_quiet(gateway: Gateway, requests: int) -> list[float]:
    since = gateway.plane.book.evidence.newest_seq
    for each in range(requests):
        await _asked(gateway, each)
    return _packets(gateway, since)


async def _round(gateway: Gateway, model: Path, number: int) -> Round:
    if number % 2:
        quiet = await _while_quiet(gateway, LEAST_REQUESTS)
        loading, load_s = await _while_loading(gateway, model, number)
    else:
        loading, load_s = await _while_loading(gateway, model, number)
        quiet = await _while_quiet(gateway, min(MOST_REQUESTS, max(LEAST_REQUESTS, len(loading))))
    return Round(loading, quiet, load_s)


async def _rounds(folder: Path, count: int) -> list[Round]:
    first, second = SHIPPED.values()
    residents = (
        ResidentSpec(name=A, version="v0", checkpoint=second, device="cpu"),
        ResidentSpec(name=B, version="stable", checkpoint=first, device="cpu"),
    )
    settings = settings_for(folder, residents=residents)
    rounds: list[Round] = []
    async with running_gateway(settings, worker=WORKER, wait=False) as gateway:
        await until(lambda: len(gateway.plane.ready()) == 2, 300.0)
        await _while_quiet(gateway, 2 * CLIPS)  # the first answers are of a cold process
        for number in range(count):
            model = folder / f"model-{number}"
            shutil.copytree(second, model)
            rounds.append(await _round(gateway, model, number))
    return rounds


def p95(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.95, method="inverted_cdf"))


def ratio(rounds: list[Round]) -> float:
    """p95 while a model loads over p95 while none does."""
    return p95([s for r in rounds for s in r.loading]) / p95([s for r in rounds for s in r.quiet])


def bounds(rounds: list[Round]) -> tuple[float, float]:
    """95 % by resampling rounds, and requests within them."""
    rng = np.random.default_rng(1)

    def again(seconds: list[float]) -> list[float]:
        return list(rng.choice(seconds, len(seconds)))

    def resampled() -> float:
        chosen = [rounds[i] for i in rng.integers(len(rounds), size=len(rounds))]
        return ratio([Round(again(r.loading), again(r.quiet), r.load_s) for r in chosen])

    low, high = np.quantile([resampled() for _ in range(RESAMPLES)], (0.025, 0.975))
    return float(low), float(high)


def figures(quick: bool) -> list[Figure]:
    """The ratio with its bounds, and how long a load takes that gives way."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = asyncio.run(_rounds(Path(folder), 2 if quick else 8))
    low, high = bounds(rounds)
    quiet = [s for r in rounds for s in r.quiet]
    loading = [s for r in rounds for s in r.loading]
    n = f"n {len(loading)} and {len(quiet)} answers in {len(rounds)} rounds"
    took = [r.load_s for r in rounds]
    return [
        Figure(
            "upper 95 % bound of B's p95 first packet while A loads, over that while it does not",
            high, "x", BAR, f"ratio {ratio(rounds):.3f}, {n}", low=low, high=high,
        ),
        Figure("B's p95 first packet, nothing loads", p95(quiet), "s", None, n),
        Figure("B's p95 first packet, A loads", p95(loading), "s", None, n),
        Figure(
            "a load that gives way to B, median", float(np.median(took)), "s", None,
            f"{min(took):.1f} to {max(took):.1f} s",
        ),
    ]  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    show(figures(args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
