"""The voices that ship: whole answers of the real engine are clean, and its drill is heard."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench.spoken_answers import Answered, answers, verdict_on
from monitors.detectors.finding import Abstained
from monitors.labels import Grade
from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def shipped(shipped_checkpoint: Path) -> Iterator[Checkpoint]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield checkpoint.load(shipped_checkpoint)
    torch.set_num_threads(threads)


def spoken(shipped: Checkpoint, count: int, seed: int, *, truncated: bool) -> list[Answered]:
    found = answers(shipped, count, truncated=truncated, seed=seed)
    assert all(answer.packets and answer.text for answer in found)
    return found


def rules(shipped: Checkpoint, answer: Answered, *, accounts: bool) -> set[str]:
    """Those broken hard."""
    verdict = verdict_on(answer, shipped.voices[answer.voice], accounts=accounts)
    assert not isinstance(verdict, Abstained), verdict
    return {fault.rule for fault in verdict if fault.grade is Grade.HARD}


def test_whole_answers_have_no_fault_of_any_grade(shipped: Checkpoint) -> None:
    for answer in spoken(shipped, 8, 1, truncated=False):
        assert verdict_on(answer, shipped.voices[answer.voice], accounts=True) == ()


def test_a_truncated_answer_is_told_by_its_accounts_and_heard_without_them(
    shipped: Checkpoint,
) -> None:
    for answer in spoken(shipped, 4, 2, truncated=True):
        assert {"length", "samples_lost"} <= rules(shipped, answer, accounts=True)
        assert rules(shipped, answer, accounts=False) & {"short", "hard_end"}
