"""Keys of the one hash table, and what the index keeps and drops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.index import Entry, KeyScope, PrefixIndex, block_keys
from runtime.kv.tokens import CODE, MediaSpan, PromptTokens, complete_blocks, layout
from tests.unit.kv.test_kv_pool import filled, pool
from tests.unit.kv.tiny_text import prompt

TEXT, IMAGE, AUDIO, VIDEO = Modality
SCOPE = KeyScope(weights_digest="w", calibration_digest="c", epoch=1)  # fmt: skip
PROMPT = prompt((TEXT, 20), (VIDEO, 18), (TEXT, 20))


def keys(tokens: PromptTokens = PROMPT, scope: KeyScope = SCOPE, salt: str = "") -> list[bytes]:
    return block_keys(tokens, scope.root(salt))


def test_a_block_holds_one_modality_and_at_most_sixteen_tokens() -> None:
    assert layout(PROMPT.codes) == [(0, 16), (16, 20), (20, 36), (36, 38), (38, 54), (54, 58)]
    assert complete_blocks(PROMPT.codes) == layout(PROMPT.codes)[:-1]
    assert layout(np.zeros(0, np.int8)) == []


def test_equal_prompts_have_equal_keys() -> None:
    assert keys() == keys(prompt((TEXT, 20), (VIDEO, 18), (TEXT, 20)))
    assert len(set(keys())) == len(keys()) == 5


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (keys(salt="other tenant"), 0),
        (keys(scope=replace(SCOPE, weights_digest="x")), 0),
        (keys(scope=replace(SCOPE, calibration_digest="x")), 0),
        (keys(scope=replace(SCOPE, epoch=2)), 0),
        (keys(prompt((TEXT, 20), (VIDEO, 18), (TEXT, 20), digest="other clip")), 2),
        (keys(prompt((TEXT, 20), (IMAGE, 18), (TEXT, 20))), 2),
        (keys(prompt((TEXT, 20), (VIDEO, 18), (TEXT, 20), start=1)), 0),
    ],
    ids=["salt", "weights", "calibration", "epoch", "media", "modality", "position"],
)
def test_a_hit_needs_everything_equal(other: list[bytes], shared: int) -> None:
    assert [a == b for a, b in zip(keys(), other, strict=True)] == [True] * shared + [False] * (
        5 - shared
    )


def test_the_same_slice_at_another_offset_is_another_block() -> None:
    codes = np.full(16, CODE[AUDIO], np.int8)
    one, two = (
        PromptTokens(codes.astype(np.int64), codes, np.zeros((3, 16), np.int64), (span,))
        for span in (MediaSpan(0, 16, "d"), MediaSpan(-1, 16, "d"))
    )
    assert keys(one) != keys(two)


def test_slices_that_meet_at_another_token_are_another_block() -> None:
    codes = np.full(16, CODE[AUDIO], np.int8)
    one, two = (
        PromptTokens(
            codes.astype(np.int64),
            codes,
            np.zeros((3, 16), np.int64),
            (MediaSpan(0, cut, "d"), MediaSpan(cut, 16, "e")),
        )
        for cut in (4, 8)
    )
    assert keys(one) != keys(two)


def entry(pages: np.ndarray, parent: bytes = b"", states: int = 0, epoch: int = 0) -> Entry:
    return Entry(parent, 0, pages, torch.zeros(states, 1) if states else None, epoch, cost=16.0)


def test_looking_in_the_index_leaves_no_trace() -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=10**6)
    for name, page in zip((b"a", b"b"), pages, strict=True):
        index.insert(name, entry(np.array([page])))
    p.release(pages)
    for _ in range(5):
        assert len(index.match([b"a"])) == 1
    assert index.evict()
    assert index.match([b"a"]) == []  # the older of two alike, however often it was seen


def test_talker_states_over_the_budget_push_old_entries_out() -> None:
    p = pool()
    pages = filled(p, 3)
    index = PrefixIndex(p, state_budget=100)
    p.hold(pages)
    p.release(pages)
    for name, page in zip((b"a", b"b", b"c"), pages, strict=True):
        index.insert(name, entry(np.array([page]), states=12))  # 48 bytes each
    assert index.state_bytes == 96
    assert [len(index.match([key])) for key in (b"a", b"b", b"c")] == [0, 1, 1]


def test_a_sweep_drops_older_epochs_only() -> None:
    p = pool()
    pages = filled(p, 2)
    index = PrefixIndex(p, state_budget=100)
    index.insert(b"old", entry(pages[:1], states=2))
    index.insert(b"new", entry(pages[1:], states=2, epoch=1))
    assert index.states_before(1) == (1, 8)
    index.sweep(1)
    assert index.states_before(1) == (0, 0)
    assert len(index) == 1
