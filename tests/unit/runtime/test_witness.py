"""The prompt that must miss after a flush: the last one served before it."""

import numpy as np

from runtime.residents.port import Generate, TextPart, Turn
from runtime.witness import Witness, Witnesses


def a_witness(text: str, kilobytes: int = 1) -> Witness:
    request = Generate(
        request_id=text,
        session="s",
        turns=(Turn(role="user", parts=(TextPart(text=text),)),),
        max_tokens=9,
        speech=True,
        voice="v",
        salt="tenant",
    )
    return Witness(request, [np.zeros(kilobytes * 1024, np.uint8)], prompt_tokens=7, pool_epoch=3)


def test_the_last_prompt_before_the_flush_is_the_witness() -> None:
    witnesses = Witnesses()
    witnesses.keep("a", a_witness("one"))
    witnesses.keep("a", last := a_witness("two"))
    witnesses.flushed("a")
    witnesses.keep("a", a_witness("after"))
    assert witnesses.of_flush("a") is last
    assert witnesses.of_flush("b") is None


def test_a_repeated_flush_keeps_its_witness() -> None:
    witnesses = Witnesses()
    witnesses.keep("a", kept := a_witness("one"))
    witnesses.flushed("a")
    witnesses.flushed("a")
    assert witnesses.of_flush("a") is kept


def test_a_prompt_too_large_to_keep_leaves_the_one_before() -> None:
    witnesses = Witnesses(max_bytes=2048)
    witnesses.keep("a", small := a_witness("small"))
    witnesses.keep("a", a_witness("large", kilobytes=3))
    witnesses.flushed("a")
    assert witnesses.of_flush("a") is small


def test_a_probe_is_the_same_prompt_and_leaves_no_trace() -> None:
    probe = a_witness("one").probe("probe-1")
    assert (probe.request_id, probe.max_tokens, probe.speech) == ("probe-1", 1, False)
    assert not probe.cache_write
    assert probe.probe_epoch == 3
    assert (probe.turns, probe.salt) == (a_witness("one").request.turns, "tenant")
