"""Right answers dictated over pages, against one dense pass of the whole text."""

import numpy as np
import pytest

from monitors.contract import KvRung
from runtime.engine.build import EngineSettings
from runtime.kv.reuse import off
from runtime.model.checkpoint import Checkpoint
from runtime.model.processor import Processor
from runtime.model.thinker import pack
from runtime.quality import likelihood
from runtime.quality.likelihood import Likelihood, NotANumber, PoolTooSmall
from runtime.residents.port import Array, Generate
from tests.support.asking import ask
from tests.unit.model.dense import DenseThinker

RIGHT = ("red seven blue two", "one")
Asked = tuple[Generate, list[Array], str]


def questions() -> list[Asked]:
    """About a clip of several prefill slices, and about nothing."""
    asked = [ask("clip", media=24, max_tokens=32), ask("text", "Say one.", max_tokens=32)]
    return [(*one, right) for one, right in zip(asked, RIGHT, strict=True)]


def paged(loaded: Checkpoint, pool_bytes: int = 32_000_000) -> Likelihood:
    settings = EngineSettings("eval", "v1", pool_bytes, reuse=off("native"))
    return Likelihood(loaded, settings, KvRung.NATIVE)


def dense(loaded: Checkpoint, asked: Asked) -> float:
    generate, arrays, right = asked
    prompt = Processor(loaded).prompt(generate.turns, arrays)
    answer = paged(loaded).answer(right)
    over = DenseThinker(loaded)  # the latest sets the attention of them all
    batch = pack([over.embed(prompt), over.thinker.embed_tokens(answer[:-1])])
    tail = np.arange(len(answer) - 1) + prompt.next_position
    positions = np.concatenate([prompt.positions, np.tile(tail, (3, 1))], axis=1)
    hidden = over.forward(batch, positions, None).last_hidden[len(prompt) - 1 :]
    chances = over.thinker.logits(hidden).log_softmax(-1)
    return -float(np.mean([chances[i, token] for i, token in enumerate(answer)]))


def test_an_answer_costs_what_one_dense_pass_says_also_beside_another(loaded: Checkpoint) -> None:
    wanted = [dense(loaded, one) for one in questions()]
    assert paged(loaded).nats(questions()) == pytest.approx(wanted, rel=1e-4)
    assert len(set(wanted)) == 2


def test_the_end_is_part_of_the_answer(loaded: Checkpoint) -> None:
    answer = paged(loaded).answer("red seven")
    assert loaded.tokenizer.decode(answer[:-1]) == "red seven"
    assert answer[-1] == loaded.config.im_end_token_id


def test_pages_are_counted_where_the_answers_end(loaded: Checkpoint) -> None:
    over = paged(loaded)
    over.nats(questions())
    prompts = [Processor(loaded).prompt(g.turns, arrays) for g, arrays, _ in questions()]
    answered = [len(over.answer(right)) - 1 for right in RIGHT]  # the end is never fed back
    assert over.pages.tokens == sum(map(len, prompts)) + sum(answered)
    assert over.pages.bytes == over.pages.native_bytes > 0


@pytest.mark.parametrize("pool_bytes", [400_000, 900_000])
def test_too_small_a_pool_is_refused_before_it_changes_what_is_measured(
    loaded: Checkpoint, pool_bytes: int
) -> None:
    over = paged(loaded, pool_bytes)
    with pytest.raises(PoolTooSmall, match="more megabytes"):
        over.nats([*questions(), *[(*ask(f"more {i}", media=8), "one") for i in range(4)]])
    short = ask("short", "Say one.")
    assert len(over.nats([(*short, "one")])) == 1  # all that was open is closed again


def test_no_number_is_no_score(loaded: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = likelihood.Dictated.logits
    monkeypatch.setattr(
        likelihood.Dictated, "logits", lambda self, hidden: plain(self, hidden * float("nan"))
    )
    with pytest.raises(NotANumber, match="sample text"):
        paged(loaded).nats(questions()[1:])
