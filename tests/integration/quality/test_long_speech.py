"""The shipped voices end by themselves: a speech that is cut off at its limit counts as a fault."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runtime.model import checkpoint
from runtime.model.shipped import SHIPPED
from runtime.quality.held_out import draw
from runtime.quality.tasks import Kind, parts_of, question_part
from runtime.residents.port import Finished, Generate, Part, TextPart, Turn
from tests.unit.engine.driving import Driver

POOL_BYTES = 64_000_000


@pytest.fixture(scope="module", params=SHIPPED.values(), ids=SHIPPED)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder: Path = request.param
    yield Driver(checkpoint.load(folder), pool_bytes=POOL_BYTES)
    torch.set_num_threads(threads)


def spoken(driver: Driver, name: str, parts: list[Part], arrays: list[object]) -> Finished:
    asked = Generate(
        request_id=name,
        session="",
        turns=(Turn(role="user", parts=tuple(parts)),),
        max_tokens=64,
        speech=True,
        voice="aiden",
        salt="",
    )
    return driver.run((asked, arrays))


@pytest.mark.parametrize("seconds", [20, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Kind.PAIRS, Kind.DIGITS])
def test_speech_ends_behind_a_clip_longer_than_any_answer_was_learned_for(
    driver: Driver, kind: Kind, seconds: int
) -> None:
    sample = draw(kind, seconds, 0, seed=0)
    parts, arrays = parts_of(sample.media, sample.name)
    end = spoken(driver, sample.name, [*parts, *question_part(sample.question)], arrays)
    assert end.speech_reason == "stop"
    assert end.codec_frames == pytest.approx(5 * end.completion_tokens, abs=10)


def test_speech_ends_behind_a_question_that_means_nothing(driver: Driver) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    assert spoken(driver, "text", [TextPart(text=text)], []).speech_reason == "stop"
