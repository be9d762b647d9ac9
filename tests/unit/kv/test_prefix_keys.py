"""No false hit: keys are equal exactly where all that a block depends on is equal.

The oracle hashes a prompt token by token, knowing nothing of blocks or chains. Prompts come in
families: one, and near misses of it that differ in one small thing. Ids, digests, salts and
positions are drawn from few, so that what is put together wrongly would collide.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from operator import attrgetter

import numpy as np
import pytest
from numpy.typing import NDArray

from monitors.labels import Modality
from runtime.kv.index import Entry, Key, KeyMemo, KeyScope, PrefixIndex, block_keys
from runtime.kv.tokens import CODE, TEXT, MediaSpan, PromptTokens, complete_blocks
from tests.unit.kv.test_kv_pool import pool

MEDIA = [CODE[m] for m in Modality if m is not Modality.TEXT]
DIGESTS = ("", "0", "1", "1 2", "0 4 ", "a+0", "a+", "+0", "a\x00b", "a", "b")
WORDS = ("", "a", "b", "ab", "1", "12", "root", "block")
RUNS, LONGEST = 12, 40  # of a prompt: runs of one modality, and tokens of a run
Rng = np.random.Generator


@dataclass(frozen=True)
class Context:
    """A prompt, and under what it is asked."""

    scope: KeyScope
    salt: str
    tokens: PromptTokens

    def keys(self) -> list[Key]:
        return block_keys(self.tokens, self.scope.root(self.salt))

    def oracle(self) -> list[bytes]:
        """Of each complete block: a digest of everything up to its end."""
        tokens, scope = self.tokens, self.scope
        root = (scope.weights_digest, scope.calibration_digest, scope.epoch, self.salt)
        state = sha256(repr(root).encode())
        records = np.column_stack(
            [tokens.ids, tokens.codes, tokens.positions.T, *_origins(tokens)]
        ).astype(np.int64)
        seen = []
        for start, stop in complete_blocks(tokens.codes):
            state.update(records[start:stop].tobytes())
            seen.append(state.digest()[:16])
        return seen


def _origins(tokens: PromptTokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each token: which digest it comes from, -1 for none, and its place in that slice."""
    which, place = np.full(len(tokens), -1), np.full(len(tokens), -1)
    for span in tokens.media:
        first = max(0, span.start)
        known = int.from_bytes(sha256(span.digest.encode()).digest()[:7], "little")
        which[first : span.stop] = known
        place[first : span.stop] = np.arange(first - span.start, span.stop - span.start)
    return which, place


# ---------------------------------------------------------------- prompts
def drawn(rng: Rng) -> Context:
    """Text and media by turns; a media run holds two slices."""
    codes, spans, at = [], [], 0
    first = int(rng.integers(2))
    for run in range(first, first + RUNS):
        count = int(rng.integers(4, LONGEST))
        codes.append(np.full(count, rng.choice(MEDIA) if run % 2 else TEXT, np.int8))
        if run % 2:
            cuts = [at, at + int(rng.integers(1, count)), at + count]
            spans += [MediaSpan(a, b, str(rng.choice(DIGESTS))) for a, b in pairwise(cuts)]
        at += count
    ids = rng.integers(0, 3, at)
    positions = rng.integers(0, 2, (3, at)) + (np.arange(at) if rng.integers(2) else 0)
    scope = KeyScope(str(rng.choice(WORDS)), str(rng.choice(WORDS)), int(rng.integers(3)))
    tokens = PromptTokens(ids, np.concatenate(codes), positions, tuple(spans))
    return Context(scope, str(rng.choice(WORDS)), tokens)


def with_id(rng: Rng, c: Context) -> Context:
    ids = c.tokens.ids.copy()
    ids[rng.integers(len(ids))] += 1
    return replace(c, tokens=replace(c.tokens, ids=ids))


def with_two_ids_swapped(rng: Rng, c: Context) -> Context:
    ids = c.tokens.ids.copy()
    at = rng.integers(len(ids) - 1)
    ids[[at, at + 1]] = ids[[at + 1, at]]
    return replace(c, tokens=replace(c.tokens, ids=ids))


def with_position(rng: Rng, c: Context) -> Context:
    positions = c.tokens.positions.copy()
    positions[rng.integers(3), rng.integers(positions.shape[1])] += 1
    return replace(c, tokens=replace(c.tokens, positions=positions))


def with_digest(rng: Rng, c: Context) -> Context:
    media, at = list(c.tokens.media), rng.integers(len(c.tokens.media))
    media[at] = replace(media[at], digest=media[at].digest + str(rng.choice(["", " ", "0", "a"])))
    return replace(c, tokens=replace(c.tokens, media=tuple(media)))


def with_cut(rng: Rng, c: Context) -> Context:
    """Two neighbouring slices meet one token earlier or later, or change places."""
    media, at = list(c.tokens.media), 2 * int(rng.integers(len(c.tokens.media) // 2))
    one, two = media[at], media[at + 1]
    if rng.integers(2):
        media[at : at + 2] = [replace(one, digest=two.digest), replace(two, digest=one.digest)]
    else:
        low, high = one.start + 1, two.stop - 1
        cut = min(max(one.stop + int(rng.choice([-1, 1])), low), high)
        media[at : at + 2] = [replace(one, stop=cut), replace(two, start=cut)]
    return replace(c, tokens=replace(c.tokens, media=tuple(media)))


def with_offset(rng: Rng, c: Context) -> Context:
    """A slice began a token earlier: all its offsets go up by one. The token before it, if there
    is one, is of the slice, too."""
    media, at = list(c.tokens.media), 2 * int(rng.integers(len(c.tokens.media) // 2))
    media[at] = replace(media[at], start=media[at].start - 1)
    return replace(c, tokens=replace(c.tokens, media=tuple(media)))


def with_modality(rng: Rng, c: Context) -> Context:
    codes, span = c.tokens.codes.copy(), c.tokens.media[rng.integers(len(c.tokens.media))]
    codes[span.start : span.stop] = rng.choice(MEDIA)
    return replace(c, tokens=replace(c.tokens, codes=codes))


def with_block_boundary(rng: Rng, c: Context) -> Context:
    """A text token fewer: what stands behind it moves up by one."""
    old = c.tokens
    at = int(rng.choice(np.flatnonzero(old.codes == TEXT)))
    media = tuple(
        MediaSpan(s.start - 1, s.stop - 1, s.digest) if s.start > at else s for s in old.media
    )
    tokens = PromptTokens(
        np.delete(old.ids, at), np.delete(old.codes, at), np.delete(old.positions, at, 1), media
    )
    return replace(c, tokens=tokens)


def with_root(rng: Rng, c: Context) -> Context:
    """Another scope or tenant; among them a letter that moves from one part to the next."""
    scope = c.scope
    word = scope.weights_digest + scope.calibration_digest
    cut = int(rng.integers(len(word) + 1))
    digit = c.salt[:1] if c.salt[:1].isdigit() else ""
    return [
        replace(c, salt=str(rng.choice(WORDS))),
        replace(c, scope=replace(scope, weights_digest=str(rng.choice(WORDS)))),
        replace(c, scope=replace(scope, calibration_digest=str(rng.choice(WORDS)))),
        replace(c, scope=replace(scope, epoch=scope.epoch + 1)),
        replace(c, scope=KeyScope(word[:cut], word[cut:], scope.epoch)),
        Context(replace(scope, epoch=int(f"{scope.epoch}{digit}")), c.salt[len(digit) :], c.tokens),
    ][rng.integers(6)]


MISSES: tuple[Callable[[Rng, Context], Context], ...] = (
    with_id, with_two_ids_swapped, with_position, with_digest, with_cut, with_offset,
    with_modality, with_block_boundary, with_root, with_root,
)  # fmt: skip


# ---------------------------------------------------------------- the claim
class Seen:
    """Keys and oracles of all blocks so far, 16 bytes each."""

    def __init__(self) -> None:
        self._keys, self._oracles = bytearray(), bytearray()

    def add(self, keys: list[Key], oracles: list[bytes]) -> None:
        self._keys += b"".join(keys)
        self._oracles += b"".join(oracles)

    def distinct(self) -> tuple[int, int, int]:
        """How many keys, how many oracles, how many pairs of them."""
        keys, oracles = (np.frombuffer(b, np.uint64).reshape(-1, 2) for b in self._both())
        return tuple(_distinct(rows) for rows in (keys, oracles, np.hstack([keys, oracles])))

    def _both(self) -> tuple[bytearray, bytearray]:
        return self._keys, self._oracles


def _distinct(rows: NDArray[np.uint64]) -> int:
    ordered = rows[np.lexsort(rows.T)]
    return 1 + int((ordered[1:] != ordered[:-1]).any(1).sum())


def entry(parent: Key) -> Entry:
    return Entry(parent, 0, np.zeros(0, np.int64), None, epoch=0, cost=1.0)


def fuzz(families: int) -> tuple[int, int]:
    """Distinct contexts, and lookups of what was never inserted. Each key is as the oracle says,
    and the index finds what was inserted and not a block more."""
    rng, seen, missed = np.random.default_rng(4), Seen(), 0
    index, inserted = PrefixIndex(pool(), state_budget=1), set[bytes]()
    for number in range(families):
        family = [drawn(rng)]
        family += [miss(rng, family[0]) for miss in MISSES]
        for member, context in enumerate(family):
            keys, oracles = context.keys(), context.oracle()
            seen.add(keys, oracles)
            known = [oracle in inserted for oracle in oracles]
            for key, there in zip(keys, known, strict=True):
                assert len(index.match([key])) == there
            missed += known.count(False)
            if member == 0 and number % 4 == 0:
                parents = [context.scope.root(context.salt), *keys]
                for parent, key in zip(parents, keys, strict=False):
                    index.insert(key, entry(parent))
                inserted.update(oracles)
    keys, oracles, pairs = seen.distinct()
    assert keys == oracles == pairs
    return oracles, missed


def test_twenty_thousand_fuzzed_keys_give_no_false_hit() -> None:
    contexts, missed = fuzz(160)
    assert contexts > 20_000
    assert missed > 20_000


@pytest.mark.slow
def test_a_million_fuzzed_keys_give_no_false_hit() -> None:
    contexts, missed = fuzz(8_000)
    assert contexts > 1_000_000
    assert missed > 1_000_000


@pytest.mark.parametrize("miss", MISSES, ids=attrgetter("__name__"))
def test_every_kind_of_near_miss_changes_some_key_and_none_before_it(
    miss: Callable[[Rng, Context], Context],
) -> None:
    rng, changed = np.random.default_rng(5), 0
    for _ in range(20):
        one = drawn(rng)
        other = miss(rng, one)
        same = [a == b for a, b in zip(one.keys(), other.keys(), strict=False)]
        assert same == sorted(same, reverse=True)
        changed += not all(same)
    assert changed > 5


# ---------------------------------------------------------------- hashed once
def test_a_prompt_that_waits_is_hashed_once_for_each_root() -> None:
    memo, tokens = KeyMemo(), drawn(np.random.default_rng(6)).tokens
    first = memo.keys(tokens, b"one")
    assert memo.keys(tokens, b"one") is first
    assert memo.keys(tokens, b"two") == block_keys(tokens, b"two") != first
    assert memo.keys(tokens, b"one") == first


def test_the_keys_of_a_prompt_go_with_it() -> None:
    memo, tokens = KeyMemo(), drawn(np.random.default_rng(6)).tokens
    memo.keys(tokens, b"one")
    assert len(memo) == 1
    del tokens
    gc.collect()
    assert len(memo) == 0
