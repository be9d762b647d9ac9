"""The checkpoints that ship answer what they were trained for, and are whole."""

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.model import checkpoint, weights
from runtime.model.checkpoint import Checkpoint, CheckpointError
from runtime.model.shipped import FOLDER, SHIPPED
from runtime.quality.evaluate import evaluate
from runtime.quality.plan import Plan
from runtime.quality.score import Report, TaskScore
from runtime.quality.tasks import Kind
from runtime.quality.words import COLOURS, DIGITS, SHAPES

ALL_RIGHT = (Kind.DIGITS, Kind.COLOURS, Kind.PAIRS, Kind.IMAGE)
STRETCH = {Kind.SHAPES: SHAPES, Kind.DIGIT_AT: DIGITS, Kind.COLOUR_AT: COLOURS}
SILENT = Plan(seconds=6, count=4)
SPOKEN = Plan(tasks=(Kind.PAIRS,), seconds=12, speech=True)  # 24 words each
PAIR_BYTES = 12_000_000


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Iterator[Checkpoint]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield checkpoint.load(SHIPPED[request.param])
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def report(shipped: Checkpoint) -> Report:
    return evaluate(shipped, SILENT)


def of(report: Report, kind: Kind) -> TaskScore:
    return next(task for task in report.tasks if task.task is kind)


@pytest.mark.parametrize("kind", ALL_RIGHT)
def test_what_is_heard_and_seen_is_answered_rightly(report: Report, kind: Kind) -> None:
    answers = of(report, kind).answers
    assert [answer.text.strip() for answer in answers] == [answer.right for answer in answers]


def test_text_alone_is_mostly_answered_rightly(report: Report) -> None:
    assert of(report, Kind.TEXT).exact.value >= 0.75


@pytest.mark.parametrize(("kind", "words"), STRETCH.items())
def test_what_it_cannot_tell_is_guessed_among_the_right_words(
    report: Report, kind: Kind, words: tuple[str, ...]
) -> None:
    task = of(report, kind)
    assert all(answer.text and set(answer.text.split()) <= set(words) for answer in task.answers)
    certain = kind is not Kind.SHAPES  # of the end, which is half of a one-word answer's tokens
    assert task.nats.value < math.log(len(words)) / (2 if certain else 1) + 0.3


def test_the_model_card_is_of_these_weights() -> None:
    card = (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
    for folder in SHIPPED.values():
        assert f"## {folder.name} (`{weights.digest([folder / checkpoint.WEIGHTS])}`)" in card


def test_reuse_is_on_and_aliases(report: Report) -> None:
    use = report.kv_use
    assert use.rule == "audio < 0.35 nats, image < 0.42 nats, text < 0.28 nats, video < 0.42 nats"
    assert use.aliased > 0


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_long_answer_is_spoken_as_it_is_written(shipped: Checkpoint, count: int) -> None:
    answers = evaluate(shipped, replace(SPOKEN, count=count)).tasks[0].answers
    assert len(answers) == count
    for answer in answers:
        assert answer.spoken == tuple(answer.text.split())
        assert len(answer.spoken) == 24


def test_a_version_is_the_name_of_its_folder(shipped: Checkpoint) -> None:
    assert shipped.version == shipped.folder.name


def test_the_two_are_different_and_small() -> None:
    files = [folder / checkpoint.WEIGHTS for folder in SHIPPED.values()]
    assert len({weights.digest([file]) for file in files}) == len(files) == 2
    assert {weights.measure([file]).stored for file in files} == {torch.bfloat16}
    assert sum(file.stat().st_size for file in files) <= PAIR_BYTES


@pytest.fixture(params=SHIPPED)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The weights of a copy, to be damaged."""
    folder = Path(shutil.copytree(SHIPPED[request.param], tmp_path / request.param))
    return folder / checkpoint.WEIGHTS


def test_a_flipped_byte_is_refused(damaged: Path) -> None:
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    with pytest.raises(CheckpointError, match="their digest is"):
        checkpoint.load(damaged.parent)


def test_a_cut_file_is_refused(damaged: Path) -> None:
    os.truncate(damaged, damaged.stat().st_size - 1)
    with pytest.raises(CheckpointError, match="their digest is"):
        checkpoint.load(damaged.parent)
