"""The model card says what was measured, and what was not run is missed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from runtime.quality.score import Answer, Report, TaskScore, score
from runtime.quality.tasks import Kind
from tests.unit.quality.reports import answer, report
from tools.measure_tiny import BARRED, Job, jobs
from tools.tiny.card import card
from tools.train_tiny import CONTROL, FIRST

COUNT = 20


@dataclass
class Grid:
    """A report for every job: `wrong` answers of each task under random reuse on the control."""

    wrong: int

    def __iter__(self) -> Iterator[tuple[str, Report]]:
        for job in jobs(COUNT):
            yield job.name, self._report(job)

    def _report(self, job: Job) -> Report:
        plan = job.plan
        bad = self.wrong if job.version == CONTROL and plan.policy.name == "random50" else 0
        said = ("red",) if plan.speech else None
        answers = _answers(plan.count, bad, said)
        return report(
            answers,
            version=job.version,
            policy=plan.policy.name,
            rung=plan.rung,
            level=plan.level,
            seconds=plan.seconds,
            count=plan.count,
            speech=plan.speech,
            tasks=tuple(_scored(task, plan.count, bad, said) for task in plan.tasks),
        )


def _answers(count: int, bad: int, said: tuple[str, ...] | None) -> list[Answer]:
    return [answer(i, "blue" if i < bad else "red", spoken=said) for i in range(count)]


@cache
def _scored(kind: Kind, count: int, bad: int, said: tuple[str, ...] | None) -> TaskScore:
    return score(kind, _answers(count, bad, said))


def test_every_job_has_a_name_of_its_own() -> None:
    names = [job.name for job in jobs(COUNT)]
    assert len(set(names)) == len(names)


def test_the_card_shows_every_table() -> None:
    text = card(dict(Grid(wrong=4)), COUNT)
    assert "{" not in text
    for kind in Kind:
        assert text.count(f"| {kind}: ") == 2
    assert "| random 50 % | 50.0% | -50.0 [" in text
    assert "| random 50 % | 100.0% | +0.0 [" in text
    assert text.count("| lowest-entropy 50 %, int8 |") == 2
    assert "| 4: media 160x160 and 8 kHz, kv int8 |" in text


def test_a_missing_evaluation_is_missed() -> None:
    reports = dict(Grid(wrong=0))
    plan = next(job for job in jobs(COUNT) if job.version == FIRST and job.plan.tasks == BARRED)
    del reports[plan.name]
    with pytest.raises(KeyError, match=plan.name):
        card(reports, COUNT)
