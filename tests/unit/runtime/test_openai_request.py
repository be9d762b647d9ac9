"""Parsing of chat completion requests: what is taken, and errors that name the field."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.openai_api import ChatRequest, parse
from runtime.openai_errors import ApiError
from runtime.settings import MediaLimits

LIMITS = MediaLimits(prompt_chars=50, items=2, max_tokens=100)
HELLO = [{"role": "user", "content": "hello"}]
IMAGE = {"type": "image_url", "image_url": {"url": "attachment:a.png"}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def parsed(**more: Any) -> ChatRequest:
    body = {"model": "redline", "messages": HELLO, **more}
    return parse(json.dumps(body).encode(), LIMITS)


def refusal(**more: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parsed(**more)
    return caught.value


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def test_text_alone_is_the_default_and_leaves_the_talker_out() -> None:
    asked = parsed()
    assert asked.modalities == ["text"]
    assert not asked.speech
    assert asked.tokens(default=24) == 24


def test_audio_is_asked_for_by_modalities() -> None:
    asked = parsed(modalities=["text", "audio"], audio={"voice": "chelsie", "format": "wav"})
    assert asked.speech
    assert asked.voice == "chelsie"


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert parsed(max_tokens=5, max_completion_tokens=7).tokens(default=24) == 7


def test_a_string_and_a_text_part_are_the_same_content() -> None:
    part = {"type": "text", "text": "hello"}
    assert parsed().messages == parsed(messages=user(part)).messages


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": "hi"}, "messages", "a valid array"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "'system'"),
        ({"messages": user()}, "messages.0.content", "at least 1"),
        ({"messages": user({"type": "smell"})}, "messages.0.content", "smell"),
        ({"messages": user({"type": "text"})}, "messages.0.content.0", "Field required"),
        ({"modalities": ["text", "smell"]}, "modalities.1", "'audio'"),
        ({"modalities": ["audio"]}, "modalities", '"text"'),
        ({"modalities": []}, "modalities", "at least 1"),
        ({"audio": {"voice": "x"}}, "audio", "modalities"),
        ({"n": 2}, "n", "1"),
        ({"max_tokens": 0}, "max_tokens", "greater"),
        ({"max_tokens": "many"}, "max_tokens", "integer"),
        ({"temperature": 9}, "temperature", "less than"),
        ({"tools": []}, "tools", "remove it"),
        ({"stream": "perhaps"}, "stream", "boolean"),
    ],
)
def test_a_mistake_is_answered_with_its_field(more: dict[str, Any], param: str, words: str) -> None:
    error = refusal(**more)
    assert error.status == 400
    assert (error.param or "").startswith(param)
    assert words in error.message


def test_a_stream_cannot_carry_wav() -> None:
    error = refusal(stream=True, modalities=["text", "audio"], audio={"format": "wav"})
    assert error.param == "audio.format"
    assert "pcm16" in error.message


def test_an_unknown_model_is_a_404() -> None:
    error = refusal(model="gpt-5")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "'redline'" in error.message


@pytest.mark.parametrize(
    ("more", "setting"),
    [
        ({"messages": [{"role": "user", "content": "x" * 51}]}, "limits.prompt_chars"),
        ({"messages": user(IMAGE, IMAGE, IMAGE)}, "limits.items"),
        ({"max_tokens": 101}, "limits.max_tokens"),
    ],
)
def test_a_limit_that_is_broken_is_named_with_its_setting(
    more: dict[str, Any], setting: str
) -> None:
    error = refusal(**more)
    assert error.status == 400
    assert setting in error.message


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"model": "redline', b"[" * 100_000])
def test_what_is_not_json_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse(body, LIMITS)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@given(body=JSON)
@settings(max_examples=150, deadline=None)
def test_any_json_is_parsed_or_refused_in_openais_form(body: Any) -> None:
    if isinstance(body, dict):
        body = {"model": "redline", "messages": HELLO, **body}
    refused: ApiError | None = None
    try:
        parse(json.dumps(body).encode(), LIMITS)
    except ApiError as err:
        refused = err
    if refused is not None:
        error = refused.body()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert 400 <= refused.status < 500


@given(body=st.binary(max_size=64))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    with pytest.raises(ApiError):
        parse(body, LIMITS)


@pytest.mark.parametrize(
    ("digest", "words"),
    [("crc32", "looks like sha-256=:BASE64:"), (7, "is a string like sha-256=:BASE64:")],
)
def test_a_digest_that_is_none_is_refused_by_its_field(digest: object, words: str) -> None:
    part = {"type": "video_url", "video_url": {"url": "attachment:a", "digest": digest}}
    messages = [{"role": "user", "content": [part]}]
    with pytest.raises(ApiError, match=words) as caught:
        parse(json.dumps({"model": "redline", "messages": messages}).encode(), LIMITS)
    assert caught.value.status == 400
    assert (caught.value.param or "").endswith("video_url.digest")
