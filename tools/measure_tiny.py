"""Measure the trained checkpoints and write their model card: `python -m tools.measure_tiny OUT`.

OUT is the folder that `tools.train_tiny` filled. Each evaluation leaves a JSON in OUT/figures; one
that is there, of the same weights, is not run again.
"""

import multiprocessing as mp
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import torch
import typer

from runtime.model import checkpoint
from runtime.model.checkpoint import MANIFEST
from runtime.quality.evaluate import evaluate
from runtime.quality.plan import KvPolicy, Plan
from runtime.quality.score import Report
from runtime.quality.tasks import Kind
from tools.tiny.card import COSTLY_RUNGS, card, fewer, more
from tools.train_tiny import CONTROL, FIRST, SECOND

BARRED = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS)
REUSES = ("native", "reuse", "lowest50", "random50")
PROCESSES = 2


@dataclass(frozen=True)
class Job:
    """One evaluation of one version."""

    version: str
    plan: Plan

    @property
    def name(self) -> str:
        plan = self.plan
        parts = [self.version, plan.policy.name, f"{plan.seconds}s", f"n{plan.count}"]
        parts += [f"rung{plan.rung}"] if plan.rung else []
        parts += ["spoken"] if plan.speech else []
        parts += ["every"] if plan.tasks == tuple(Kind) else []
        return "-".join(parts)


def jobs(count: int) -> list[Job]:
    """All that the card says: tasks, lengths, speech, rungs, and every KV policy."""
    some, many = fewer(count), more(count)
    found: list[Job] = []
    for version in (FIRST, SECOND):
        found.append(Job(version, Plan(tasks=tuple(Kind), count=count)))
        found.append(Job(version, Plan(BARRED, count=count, seconds=16)))
        found.append(Job(version, Plan(BARRED, count=some, speech=True)))
        policies = [KvPolicy.named(name) for name in ("native", "reuse")]
        found += [Job(version, Plan(BARRED, policy, count=many)) for policy in policies]
    found += [Job(FIRST, Plan(BARRED, count=some, rung=rung)) for rung in COSTLY_RUNGS]
    for version in (FIRST, CONTROL):
        for reuse in REUSES:
            policies = [KvPolicy.named(reuse + form) for form in ("", "+int8")]
            found += [Job(version, Plan(BARRED, policy, count=some)) for policy in policies]
    return found


def measure(folder: Path, job: Job) -> Report:
    """The report of a job, from its file where there is one of the version's present weights."""
    file = folder / "figures" / f"{job.name}.json"
    if file.exists():
        manifest = msgspec.json.decode((folder / job.version / MANIFEST).read_bytes())
        report = msgspec.json.decode(file.read_bytes(), type=Report)
        if report.weights_digest == manifest["weights_digest"]:
            return report
    torch.set_num_threads(1)
    report = evaluate(checkpoint.load(folder / job.version), job.plan)
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(report))
    part.replace(file)
    return report


def measure_all(folder: Path, count: int) -> dict[str, Report]:
    """All jobs, `PROCESSES` at a time."""
    (folder / "figures").mkdir(exist_ok=True)
    wanted = jobs(count)
    with mp.get_context("spawn").Pool(PROCESSES) as pool:
        reports: Sequence[Report] = pool.starmap(
            measure, [(folder, job) for job in wanted], chunksize=1
        )
    return {job.name: report for job, report in zip(wanted, reports, strict=True)}


def main(
    folder: Annotated[Path, typer.Argument(help="what tools.train_tiny filled")],
    count: Annotated[int, typer.Option(help="samples of each task, in the largest table")] = 150,
) -> None:
    """Evaluate the pair and the control; write OUT/model-card.md."""
    reports = measure_all(folder, count)
    (folder / "model-card.md").write_text(card(reports, count), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
