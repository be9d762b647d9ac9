"""Scores of answers made by hand, and two reports compared."""

import msgspec
import pytest

from runtime.quality.score import ALL, Report, compare, score
from runtime.quality.tasks import Kind
from tests.unit.quality.reports import answer, report


def test_an_answer_is_right_to_the_letter_but_for_space_around_it() -> None:
    texts = [" red\n", "red", "Red", "red red", "re d", ""]
    found = score(Kind.IMAGE, [answer(i, text) for i, text in enumerate(texts)])
    assert found.n == 6
    assert found.exact.value == pytest.approx(2 / 6)
    assert found.spoken is found.read_back is found.word_accuracy is None


def test_nats_are_the_samples_mean() -> None:
    found = score(Kind.IMAGE, [answer(i, nats=n) for i, n in enumerate((0.0, 1.0, 5.0))])
    assert found.nats.value == 2.0
    assert found.nats.low < 2.0 < found.nats.high


def test_speech_is_held_against_the_right_answer_and_against_its_own_text() -> None:
    right = "red seven"
    answers = [
        answer(0, right, right=right, spoken=("red", "seven")),
        answer(1, "red two", right=right, spoken=("red", "two")),
        answer(2, right, right=right, spoken=("red", "?")),
        answer(3, right, right=right, spoken=()),
    ]
    found = score(Kind.PAIRS, answers)
    assert found.exact.value == 0.75
    assert found.spoken is not None
    assert found.spoken.value == 0.25
    assert found.read_back is not None
    assert found.read_back.value == 0.5
    assert found.word_accuracy == pytest.approx(4 / 8)


@pytest.mark.parametrize(
    ("spoken", "accuracy"),
    [
        (("one", "two", "three"), 1.0),
        (("two", "three"), 2 / 3),
        (("one", "two", "two", "three"), 2 / 3),
        (("one", "four", "three"), 2 / 3),
        (("nine",) * 9, 0.0),
    ],
    ids=["right", "dropped", "doubled", "changed", "babble"],
)
def test_word_accuracy_counts_words_dropped_put_in_and_changed(
    spoken: tuple[str, ...], accuracy: float
) -> None:
    one = answer(0, "one two three", right="one two three", spoken=spoken)
    assert score(Kind.DIGITS, [one]).word_accuracy == pytest.approx(accuracy)


def test_a_report_goes_to_json_and_back() -> None:
    made = report([answer(0, spoken=("red",)), answer(1, "blue", spoken=())], speech=True)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_two_reports_are_compared_sample_by_sample() -> None:
    before = report([answer(i, nats=0.1) for i in range(50)])
    after = report([answer(i, "blue" if i == 7 else "red", nats=0.2) for i in range(50)])
    image, every = compare(before, after)
    assert (image.task, every.task) == ("image", ALL)
    assert image.n == every.n == 50
    assert image.exact.value == every.exact.value == pytest.approx(-0.02)
    assert image.exact.high <= 0.0
    assert image.nats.value == pytest.approx(0.1)


@pytest.mark.parametrize("other", [{"seed": 1}, {"number": 9}, {"right": "blue"}])
def test_reports_of_other_samples_are_not_compared(other: dict) -> None:
    seed = other.pop("seed", 0)
    second = report([answer(other.pop("number", 0), **other)], seed=seed)
    with pytest.raises(ValueError, match="different samples"):
        compare(report([answer(0)]), second)
