"""What attention a block can expect: evidence against experience, and how both carry over."""

import numpy as np
import pytest

from runtime.kv.expected import PARTS, PRIOR_LOOKS, Experience, Received, cells_of
from runtime.kv.tokens import CODE
from tests.unit.kv.tiny_text import T, V


def test_with_nothing_learned_attention_counts_as_even() -> None:
    expected = Experience(2).expected(Received(2), np.zeros(10, np.int64))
    assert expected == pytest.approx(np.full((2, 10), 0.1))


def test_what_a_block_received_outweighs_experience_with_time() -> None:
    received, cells = Received(1), np.zeros(4, np.int64)
    mass = np.array([[0.1, 0.0, 0.6, 0.3]])
    before = Experience(1).expected(received, cells)
    for _ in range(100 * PRIOR_LOOKS):
        received.note(mass)
    after = Experience(1).expected(received, cells)
    assert before == pytest.approx(np.full((1, 4), 0.25))
    assert after == pytest.approx(mass, abs=0.01)


def test_a_block_that_was_there_for_fewer_looks_is_not_colder_for_it() -> None:
    received, cells = Received(1), np.zeros(100, np.int64)
    for blocks in (50, 100):
        received.note(np.full((1, blocks), 0.05))
    expected = Experience(1).expected(received, cells)[0]
    assert expected[99] > 0.01  # even attention: one look at 0.05 has raised it
    assert expected[0] > expected[99]  # two looks say so more surely
    assert expected[0] < 2 * expected[99]


def test_experience_tells_layers_modalities_and_places_apart() -> None:
    experience = Experience(2)
    modality = np.array([CODE[T]] + [CODE[V]] * 4 + [CODE[T]] * 4)
    cells = cells_of(modality, np.arange(9) * 16, 9 * 16)
    mass = np.array([[0.0, *[0.2] * 4, *[0.05] * 4], [0.0, *[0.0] * 4, *[0.25] * 4]])
    experience.learn(mass, cells)
    assert experience.expected(Received(2), cells)[:, 1:] == pytest.approx(mass[:, 1:])


def test_what_short_sequences_taught_is_spread_over_the_blocks_of_long_ones() -> None:
    experience = Experience(1)
    short = cells_of(np.full(17, CODE[V]), np.arange(17), 17)
    experience.learn(np.full((1, 17), 1 / 17), short)
    long = cells_of(np.full(161, CODE[V]), np.arange(161), 161)
    expected = experience.expected(Received(1), long)[0, 1:]
    assert expected.sum() == pytest.approx(16 / 17)
    assert expected.max() < 2 / 161


def test_the_sinks_of_a_first_block_teach_nothing_about_the_blocks_behind_it() -> None:
    experience, cells = Experience(1), np.zeros(4, np.int64)
    experience.learn(np.array([[0.7, 0.1, 0.1, 0.1]]), cells)
    assert experience.expected(Received(1), cells)[0, 1:] == pytest.approx(np.full(3, 0.1))


def test_an_answers_blocks_are_in_the_last_part_of_the_prompt() -> None:
    cells = cells_of(np.zeros(3, np.int64), np.array([0, 100, 500]), 100)
    assert cells.tolist() == [0, PARTS - 1, PARTS - 1]


def test_received_grows_with_its_sequence_and_a_copy_goes_its_own_way() -> None:
    received = Received(1)
    received.note(np.ones((1, 10)))
    received.note(np.ones((1, 1000)))
    twin = received.copy()
    twin.note(np.ones((1, 1000)))
    assert received.mass(1001)[0, [0, 9, 10, 999, 1000]].tolist() == [2, 2, 1, 1, 0]
    assert received.looks(1001)[[0, 10, 999, 1000]].tolist() == [2, 1, 1, 0]
    assert twin.looks(1)[0] == 3
