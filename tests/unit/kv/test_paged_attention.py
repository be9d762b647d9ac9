"""The paged model against the same model over a dense cache."""

import numpy as np
import pytest
import torch

from monitors.contract import KvRung
from monitors.labels import Modality
from tests.unit.kv.tiny_text import TinyText, cache, opened, prompt

T, A, V = Modality.TEXT, Modality.AUDIO, Modality.VIDEO
CLOSE = 1e-5


def test_packed_ragged_prefill_and_decode_equal_dense_runs(tiny: TinyText) -> None:
    kv = cache()
    prompts = [
        prompt((T, 5), (V, 37), (A, 13), (T, 20), seed=1),
        prompt((T, 40), seed=2),
        prompt((A, 26), (T, 3), seed=3),
    ]
    answers = [[7, 8, 9], [10, 11, 12], [13, 14, 15]]
    running = [opened(kv, p) for p in prompts]
    parts = tiny.paged(kv, [(s, s.tokens.ids.tolist()) for s in running])
    outs = [[part] for part in parts]
    for at in range(3):
        step = tiny.paged(kv, [(s, [a[at]]) for s, a in zip(running, answers, strict=True)])
        for out, part in zip(outs, step, strict=True):
            out.append(part)
    for p, a, out in zip(prompts, answers, outs, strict=True):
        assert torch.cat(out) == pytest.approx(tiny.dense(p, a), abs=CLOSE)
    assert kv.check() == ()


@pytest.mark.parametrize("size", [1, 7, 16, 50])
def test_prefill_in_slices_equals_one_pass(tiny: TinyText, size: int) -> None:
    kv, p = cache(), prompt((T, 9), (V, 33), (A, 13), (T, 6))
    assert tiny.prefill(kv, opened(kv, p), size) == pytest.approx(tiny.dense(p), abs=CLOSE)


def test_observing_a_step_does_not_change_it(tiny: TinyText) -> None:
    kv, p = cache(), prompt((T, 9), (V, 33), (T, 6))
    hidden = tiny.prefill(kv, opened(kv, p), observed=True)
    assert hidden == pytest.approx(tiny.dense(p), abs=CLOSE)


def test_prefix_hit_equals_a_cold_run(tiny: TinyText) -> None:
    kv, p = cache(), prompt((T, 20), (V, 37), (A, 13), (T, 20))
    first = opened(kv, p)
    tiny.prefill(kv, first)
    kv.close(first)
    again = opened(kv, p)
    assert again.cached == 20 + 37 + 13 + 16  # all but the open text block at the end
    tail = tiny.prefill(kv, again)
    assert tail == pytest.approx(tiny.dense(p)[again.cached :], abs=CLOSE)
    assert kv.check() == ()


def test_a_hit_never_covers_the_last_prompt_token(tiny: TinyText) -> None:
    kv, p = cache(), prompt((T, 32))
    tiny.prefill(kv, opened(kv, p))
    assert opened(kv, p).cached == 16


@pytest.mark.parametrize("where", ["device", "host"])
def test_quantised_pages_are_read_within_the_error_of_int8(tiny: TinyText, where: str) -> None:
    kv, p = cache(), prompt((T, 20), (V, 37), (T, 30))
    other = opened(kv, prompt((T, 21), seed=5))
    running = opened(kv, p)
    tiny.prefill(kv, other)
    tiny.prefill(kv, running)
    exact = tiny.dense(p, [9])[-1]
    pages = np.unique(running.table.matrix())
    move = kv.pool.moves.quantise if where == "device" else kv.pool.moves.offload
    assert move(pages) == 4 * 6  # six complete blocks; the open tail stays native
    _, hidden = tiny.paged(kv, [(other, [3]), (running, [9])])
    error = float((hidden[0] - exact).norm() / exact.norm())
    assert 0 < error < 0.05
    assert kv.check() == ()


def test_tokens_written_after_a_fallback_still_read_back(tiny: TinyText) -> None:
    kv, p = cache(), prompt((T, 30))
    running = opened(kv, p, max_new=40)
    kv.set_kv(KvRung.INT8)
    tiny.prefill(kv, running)
    answer = list(range(4, 40))
    for token in answer:
        kv.settle()
        hidden = tiny.paged(kv, [(running, [token])])[0]
    exact = tiny.dense(p, answer)[-1]
    assert float((hidden[0] - exact).norm() / exact.norm()) < 0.05
    assert kv.check() == ()
