"""Keys of the one hash table, and what the index and the encoder cache let go of."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.account import held_before
from runtime.kv.encoders import EncoderCache
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


def entry(pages: np.ndarray, parent: bytes = b"", states: int = 0, epoch: int = 0) -> Entry:
    return Entry(parent, 0, pages, torch.zeros(states, 1) if states else None, epoch)


def test_the_least_recently_used_unused_leaf_goes_first() -> None:
    p = pool()
    pages = filled(p, 4)
    index = PrefixIndex(p, state_budget=10**6)
    index.insert(b"a", entry(pages[0:1]))
    index.insert(b"aa", entry(pages[1:2], parent=b"a"))
    index.insert(b"b", entry(pages[2:3]))
    index.insert(b"c", entry(pages[3:4]))
    p.release(pages[:3])  # c is still used by a sequence
    assert len(index.match([b"a", b"aa"])) == 2
    gone = []
    while index.evict():
        gone.append([key for key in (b"a", b"aa", b"b", b"c") if not index.match([key])])
    assert gone == [[b"b"], [b"aa", b"b"], [b"a", b"aa", b"b"]]
    assert held_before(p.records, 1).pages == 1


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


@dataclass(frozen=True)
class Output:
    nbytes: int


def test_encoder_outputs_are_kept_by_digest_and_epoch_within_the_budget() -> None:
    encoders = EncoderCache[Output](budget=100)
    encoders.put("a", 1, Output(60))
    assert encoders.get("a", 1) == Output(60)
    assert encoders.get("a", 2) is None
    encoders.put("b", 1, Output(60))
    assert encoders.get("a", 1) is None
    assert encoders.nbytes == 60
    assert encoders.held_before(2) == (1, 60)
    encoders.sweep(2)
    assert encoders.held_before(2) == (0, 0)


def test_an_output_larger_than_the_budget_is_not_kept() -> None:
    encoders = EncoderCache[Output](budget=10)
    encoders.put("a", 1, Output(60))
    assert encoders.nbytes == 0
