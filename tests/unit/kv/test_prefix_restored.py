"""A restored prefix is right: what follows it is what a cold run gives.

Both compute the same sums in float32, but a prefix hit cuts the prompt elsewhere, and the matrix
products of a shorter slice add up in another order. Measured on both shipped checkpoints, that
moves a logit by at most 6e-7 of the largest one (9.5e-6 of 17; a step of float32 is 6e-8 to 12e-8
of it); `NOISE` allows three times that. What is restored, and what is chosen, is equal to the bit.

All of it with reuse off. With reuse on, a cold prompt's last slice reads its blocks before they
are aliased and a restored one after: that difference is the price of reuse, not noise, and only
the answer is compared.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from monitors.labels import Modality
from monitors.redlines import RedLines
from runtime.engine.build import calibrated_policy
from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint
from runtime.quality.tasks import Kind
from tests.unit.kv.restoring import Answer, Asked, Asker, clip, picture, text_alone, words
from tests.unit.kv.tiny_text import TinyText, cache, opened, prompt

T, I, A, V = Modality.TEXT, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO  # noqa: E741
NOISE = 2e-6  # of the largest value


@pytest.fixture(scope="module")
def loaded(shipped_checkpoint: Path) -> Checkpoint:
    return checkpoint.load(shipped_checkpoint)


@pytest.fixture(scope="module")
def asker(loaded: Checkpoint) -> Asker:
    return Asker(loaded)


def media_first(parts: list, arrays: list) -> Asked:
    return Asked([*parts, words("What do you see and hear?")], arrays)


def mixed() -> Asked:
    (image, pixels), (parts, arrays) = picture(), clip(Kind.PAIRS)
    moved = [type(p)(**_fields(p) | {"index": p.index + len(pixels)}) for p in parts]
    return Asked(
        [words("Look at this. "), *image, words(" And then at this. "), *moved, words("What?")],
        [*pixels, *arrays],
    )


def _fields(part: object) -> dict[str, object]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


KINDS: dict[str, Callable[[], Asked]] = {
    "text": lambda: text_alone("Which digit follows three? " * 8),
    "image": lambda: media_first(*picture()),
    "audio": lambda: media_first(*clip(Kind.DIGITS)),
    "video": lambda: media_first(*clip(Kind.COLOURS)),
    "mixed": mixed,
}


def far(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    if not one.numel():
        return 0.0
    return float((one - other).abs().max() / one.abs().max())


def assert_same(warm: Answer, cold: Answer) -> None:
    assert warm.tokens == cold.tokens
    assert far(cold.logits, warm.logits) < NOISE
    assert far(cold.states, warm.states) < NOISE
    assert torch.equal(warm.codes, cold.codes)


# ---------------------------------------------------------------- hits
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_hit_logits_talker_states_and_spoken_codes_are_a_cold_runs(
    asker: Asker, kind: str
) -> None:
    asked, kv = KINDS[kind](), asker.cache()
    cold = asker.ask(kv, asked)
    warm = asker.ask(kv, asked)
    assert cold.cached == 0
    assert warm.prompt - 32 <= warm.cached < warm.prompt
    assert warm.encoded == 0
    assert len(cold.codes) >= 4
    assert torch.equal(warm.states, cold.states)
    assert_same(warm, cold)


def test_a_new_question_about_an_old_clip_restores_the_clip(asker: Asker) -> None:
    parts, arrays = clip(Kind.PAIRS)
    one, other = (Asked([*parts, words(text)], arrays) for text in ("What?", "Name the colours."))
    kv = asker.cache()
    clip_tokens = len(asker.ask(kv, one).states)
    warm = asker.ask(kv, other)
    assert warm.cached >= clip_tokens
    assert warm.encoded == 0
    assert_same(warm, asker.ask(asker.cache(), other))


def test_a_question_before_an_old_clip_spares_the_encoders_only(asker: Asker) -> None:
    parts, arrays = clip(Kind.PAIRS)
    kv = asker.cache()
    cold = asker.ask(kv, Asked([*parts, words("What?")], arrays))
    other = Asked([words("Name the colours. "), *parts], arrays)
    warm = asker.ask(kv, other)
    assert (cold.encoded, warm.encoded) == (len(arrays), 0)
    assert warm.cached == 0
    assert_same(warm, asker.ask(asker.cache(), other))


def test_with_reuse_on_a_hit_gives_a_cold_runs_answer_and_speech(
    asker: Asker, loaded: Checkpoint
) -> None:
    asked = media_first(*clip(Kind.PAIRS))
    kv = asker.cache(reuse=calibrated_policy(loaded, RedLines()))
    assert kv.reuse.on
    cold, warm = asker.ask(kv, asked), asker.ask(kv, asked)
    assert warm.cached > 0
    assert warm.tokens == cold.tokens
    assert torch.equal(warm.codes, cold.codes)


# ---------------------------------------------------------------- misses
def test_an_old_clip_at_another_place_misses(asker: Asker) -> None:
    parts, arrays = clip(Kind.PAIRS)
    one, other = (Asked([words(w), *parts, words("What?")], arrays) for w in ("So: ", "So, so: "))
    kv = asker.cache()
    asker.ask(kv, one)
    moved = asker.ask(kv, other)
    assert moved.cached < 16  # at most the words in front of it
    assert_same(moved, asker.ask(asker.cache(), other))


@pytest.mark.parametrize("kind", [Kind.DIGITS, Kind.COLOURS])
def test_the_same_ids_with_other_media_miss(asker: Asker, kind: Kind) -> None:
    one, other = (media_first(*clip(kind, number)) for number in (0, 1))
    kv = asker.cache()
    first = asker.ask(kv, one)
    second = asker.ask(kv, other)
    assert second.prompt == first.prompt
    assert second.cached < second.prompt - len(second.states)
    assert second.encoded == len(other.arrays)
    assert_same(second, asker.ask(asker.cache(), other))


def test_another_tenant_finds_neither_prefix_nor_encoder_outputs(asker: Asker) -> None:
    asked = media_first(*clip(Kind.PAIRS))
    kv = asker.cache()
    first = asker.ask(kv, asked)
    other = asker.ask(kv, replace(asked, salt="another"))
    assert other.cached == 0
    assert other.encoded == first.encoded == len(asked.arrays)
    assert_same(other, first)


# ---------------------------------------------------------------- a random language model
RUNS = {
    "text": ((T, 50),),
    "image": ((T, 20), (I, 37), (T, 20)),
    "audio": ((T, 5), (A, 13), (A, 13), (T, 20)),
    "video": ((V, 40), (T, 20)),
    "mixed": ((T, 20), (V, 18), (A, 13), (I, 30), (T, 3), (V, 16), (T, 20)),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_random_model_goes_on_behind_a_hit_as_in_one_dense_pass(
    tiny: TinyText, kind: str
) -> None:
    kv, tokens = cache(), prompt(*RUNS[kind], seed=3)
    first = opened(kv, tokens)
    tiny.prefill(kv, first)
    again = opened(kv, tokens)
    assert again.cached > len(tokens) - 32
    assert np.array_equal(again.table.matrix(), first.table.matrix()[:, : len(again.table.blocks)])
    tail = tiny.prefill(kv, again)
    answer = [5, 6, 7]
    parts = [tail, *(tiny.paged(kv, [(again, [token])])[0] for token in answer)]
    dense = tiny.dense(tokens, answer)[again.cached :]
    assert far(dense, torch.cat(parts)) < 5 * NOISE  # other attention kernels, too
    assert kv.check() == ()


@pytest.mark.parametrize(
    ("changed", "shared"),
    [
        ({"digest": "other"}, 16),
        ({"start": 1}, 0),
        ({"salt": "other"}, 0),
    ],
    ids=["media", "place", "tenant"],
)
def test_a_random_model_recomputes_what_differs(
    tiny: TinyText, changed: dict[str, object], shared: int
) -> None:
    salt = {"salt": changed.pop("salt")} if "salt" in changed else {}
    kv, runs = cache(), ((T, 16), (V, 40), (T, 20))
    tiny.prefill(kv, opened(kv, prompt(*runs)))
    other = prompt(*runs, **changed)
    running = opened(kv, other, **salt)
    assert running.cached == shared
    assert far(tiny.dense(other)[shared:], tiny.prefill(kv, running)) < 5 * NOISE
