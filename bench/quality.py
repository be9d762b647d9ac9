"""What the shipped checkpoints answer, what reuse costs them, and what two residents take."""

import asyncio
import tempfile
import time
from pathlib import Path

import torch

from bench.board import Figure, options, show
from monitors.redlines import RedLines
from runtime.model import checkpoint
from runtime.model.shipped import SHIPPED
from runtime.quality.evaluate import evaluate
from runtime.quality.held_out import Sample, draw
from runtime.quality.plan import KvPolicy, Plan
from runtime.quality.score import ALL, Report, compare
from runtime.quality.tasks import Kind, parts_of, question_part
from runtime.residents.local import LocalResident
from runtime.residents.port import Finished, Generate, Turn
from runtime.settings import ResidentSpec

BARRED = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS)
GIGABYTE = 1e9


def wrong(report: Report) -> float:
    """Per cent of the worst task."""
    return 100 * max(1 - task.exact.value for task in report.tasks)


def misspoken(report: Report) -> float:
    """Per cent of the worst task."""
    return 100 * max(1 - task.spoken.value for task in report.tasks if task.spoken is not None)


def lost(before: Report, after: Report) -> tuple[float, str]:
    """Points of exact match over all tasks, and their interval in words."""
    every = next(d.exact for d in compare(before, after) if d.task == ALL)
    return -100 * every.value, f"[{-100 * every.high:.1f}, {-100 * every.low:.1f}]"


def quality(count: int) -> list[Figure]:
    """Of the first version; the control of reuse is the same share at random."""
    loaded = checkpoint.load(next(iter(SHIPPED.values())))
    reports = {
        name: evaluate(loaded, Plan(BARRED, KvPolicy.named(name), count=count))
        for name in ("native", "reuse", "random50")
    }
    longer = evaluate(loaded, Plan(BARRED, count=count, seconds=16))
    spoken = evaluate(loaded, Plan(BARRED, count=max(1, count // 4), speech=True))
    cost, interval = lost(reports["native"], reports["reuse"])
    chance, of = lost(reports["native"], reports["random50"])
    return [
        Figure("wrong answers, clips of 8 s", wrong(reports["native"]), "%", 1.0, "none"),
        Figure("wrong answers, clips of 16 s", wrong(longer), "%", 5.0, "none"),
        Figure(
            f"lost by the article's thresholds {interval}",
            cost,
            "points",
            0.3,
            f"random 50 %: {chance:.1f} {of}",
        ),
        Figure("answers not read back right from the sound", misspoken(spoken), "%", 2.0, "none"),
    ]


async def residents(requests: int) -> tuple[float, float]:
    """Seconds until both are ready, started together; GB that both took at most."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        lines = state / "lines.json"
        lines.write_text(RedLines().model_dump_json(), encoding="utf-8")
        specs = [
            ResidentSpec(name=name, version=version, checkpoint=path)
            for name, (version, path) in zip("ba", SHIPPED.items(), strict=True)
        ]
        began = time.monotonic()
        both = [
            LocalResident(s, state_dir=state, lines=lines, min_epoch=0, on_snapshot=lambda _: None)
            for s in specs
        ]
        try:
            await asyncio.gather(*(one.load() for one in both))
            ready_s = time.monotonic() - began
            for number in range(requests):
                sample = draw(Kind.PAIRS, 8, number, seed=0)
                await asyncio.gather(*(_answer(one, sample) for one in both))
            return ready_s, sum(_peak_bytes(one) for one in both) / GIGABYTE
        finally:
            await asyncio.gather(*(one.close() for one in both))


async def _answer(resident: LocalResident, sample: Sample) -> None:
    parts, arrays = parts_of(sample.media, sample.name)
    asked = Generate(
        request_id=sample.name,
        session="",
        turns=(Turn(role="user", parts=(*parts, *question_part(sample.question))),),
        max_tokens=64,
        speech=True,
        voice="ethan",
        salt="",
    )
    last = [event async for event in resident.generate(asked, arrays)][-1]
    assert isinstance(last, Finished), last


def _peak_bytes(resident: LocalResident) -> int:
    """The most that the engine process ever had in memory."""
    assert resident.pid is not None
    status = Path(f"/proc/{resident.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    ready_s, peak_gb = asyncio.run(residents(2 if args.quick else 10))
    figures = [
        *quality(10 if args.quick else 200),
        Figure("both residents, from start to ready", ready_s, "s", 5.0, "none"),
        Figure("peak memory of both processes, summed", peak_gb, "GB", 1.5, "none"),
    ]
    show(figures, as_json=args.json)


if __name__ == "__main__":
    main()
