"""From content to turns: slices in order, and media that is refused with the field's name."""

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import MediaRung
from monitors.labels import Judgement
from monitors.redlines import RedLines
from runtime import turns
from runtime.media.fidelity import fidelity_of
from runtime.openai_api import ChatRequest
from runtime.openai_errors import ApiError
from runtime.residents.port import AudioPart, ImagePart, TextPart, VideoPart
from runtime.settings import MediaLimits
from runtime.turns import Decoding, Prompt
from tests.support import media

LINES = RedLines()
PNG = media.png()
WAV = media.wav(media.tone(1.5))
CLIP = media.clip(seconds=2.0)


def how(rung: MediaRung = MediaRung.FULL, **limits: Any) -> Decoding:
    return Decoding(
        limits=MediaLimits(**limits),
        fidelity=fidelity_of(rung, LINES.ladder),
        fps=2.0,
        slices=LINES.scheduler,
    )


def built(*parts: dict[str, Any], files: dict[str, bytes] | None = None, **options: Any) -> Prompt:
    asked = ChatRequest.model_validate(
        {"model": "redline", "messages": [{"role": "user", "content": list(parts)}]}
    )
    return turns.build(asked, files or {}, how(**options))


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def video(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def audio(data: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def refusal(*parts: dict[str, Any], **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        built(*parts, **options)
    return caught.value


def test_parts_keep_their_order_and_point_at_their_arrays() -> None:
    prompt = built(
        image(data_url("image/png", PNG)),
        audio(base64.b64encode(WAV).decode()),
        {"type": "text", "text": "What is it?"},
    )
    picture, first, second, text = prompt.turns[0].parts
    assert isinstance(picture, ImagePart)
    assert prompt.arrays[picture.index].shape == (96, 96, 3)
    assert isinstance(first, AudioPart)
    assert isinstance(second, AudioPart)
    assert len(prompt.arrays[first.index]) == 16_000
    assert (first.start_ms, second.start_ms) == (0, 1000)
    assert text == TextPart(text="What is it?")


def test_a_clip_becomes_video_and_its_sound_in_time_order() -> None:
    prompt = built(video("attachment:c.mp4"), files={"c.mp4": CLIP})
    parts = prompt.turns[0].parts
    assert isinstance(parts[0], VideoPart)
    assert parts[0].key_frame
    assert isinstance(parts[1], AudioPart)
    assert prompt.arrays[0].dtype == np.uint8
    assert {f.judgement for f in prompt.findings} == {Judgement.CLEAN}


def test_a_lower_rung_makes_the_picture_smaller() -> None:
    big = media.png(800, 600)
    full = built(image(data_url("image/png", big))).arrays[0]
    low = built(image(data_url("image/png", big)), rung=MediaRung.P160_8K).arrays[0]
    assert full.shape == (600, 800, 3)
    assert low.shape == (160, 160, 3)


def test_an_uploaded_file_equals_the_same_bytes_in_a_data_url() -> None:
    uploaded = built(image("attachment:a.png"), files={"a.png": PNG})
    inline = built(image(data_url("image/png", PNG)))
    assert uploaded.turns == inline.turns


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        (image("https://example.com/a.png"), "messages.0.content.0.image_url", "unsupported_url"),
        (video("file:///etc/passwd"), "messages.0.content.0.video_url", "unsupported_url"),
        (image("data:image/png"), "messages.0.content.0.image_url", "unsupported_url"),
        (image("data:image/png;base64,@@@"), "messages.0.content.0.image_url", "invalid_base64"),
        (audio("not base64!"), "messages.0.content.0.input_audio", "invalid_base64"),
        (image("attachment:b.png"), "messages.0.content.0.image_url", "attachment_not_found"),
        (image(data_url("image/png", b"text")), "messages.0.content.0.image_url", "not_media"),
        (video(data_url("video/mp4", b"junk" * 99)), "messages.0.content.0.video_url", "not_media"),
        (audio(base64.b64encode(PNG).decode()), "messages.0.content.0.input_audio", "not_media"),
    ],
)
def test_media_that_cannot_be_used_is_a_400_that_names_it(
    part: dict[str, Any], param: str, code: str
) -> None:
    error = refusal(part, files={"a.png": PNG})
    assert (error.status, error.param, error.code) == (400, param, code)


def test_a_missing_attachment_lists_those_there_are() -> None:
    assert (
        "'b.png'; there are: a.png"
        in refusal(image("attachment:b.png"), files={"a.png": PNG}).message
    )


def test_media_beyond_a_limit_is_a_413_that_names_the_setting() -> None:
    long = refusal(audio(base64.b64encode(WAV).decode()), clip_seconds=1.0)
    assert (long.status, "limits.clip_seconds" in long.message) == (413, True)
    large = refusal(image(data_url("image/png", PNG)), pixels=1_000)
    assert (large.status, "limits.pixels" in large.message) == (413, True)


def test_items_that_unpack_to_too_much_together_are_a_413() -> None:
    picture = image(data_url("image/png", PNG))
    assert len(built(picture, picture, decoded_bytes=2 * 96 * 96 * 3).arrays) == 2
    together = refusal(picture, picture, picture, decoded_bytes=2 * 96 * 96 * 3)
    assert (together.status, together.code) == (413, "too_many_bytes")


def test_a_large_file_is_decoded_in_pieces_that_make_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = built(image(data_url("image/png", PNG))).turns
    monkeypatch.setattr(turns, "_BASE64_PIECE", 64)
    assert built(image(data_url("image/png", PNG))).turns == whole
    text = base64.b64encode(PNG).decode()
    assert built(image(f"data:;base64,{text}")).turns == whole
    for broken in (text[:-1], f"{text[:60]}AA=={text[64:]}", f"{text[:62]}={text[63:]}"):
        assert refusal(image(f"data:;base64,{broken}")).code == "invalid_base64"


@given(data=st.binary(max_size=400), piece=st.sampled_from([4, 8, 64]))
@settings(max_examples=60, deadline=None)
def test_any_bytes_survive_base64_in_pieces(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "_BASE64_PIECE", piece)
        text = base64.b64encode(data).decode()
        assert turns._base64(f"head,{text}", "x", 5) == data


def test_media_that_was_fetched_is_found_by_its_url() -> None:
    url = "HTTPS://media.example/a.png"
    asked = ChatRequest.model_validate(
        {
            "model": "redline",
            "messages": [
                {"role": "user", "content": [image(url), image("data:,x"), audio("QQ==")]}
            ],
        }
    )
    assert turns.addresses(asked) == {url: "messages.0.content.0.image_url"}
    assert built(image(url), files={url: PNG}).arrays[0].shape == (96, 96, 3)


@given(text=st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_url_is_decoded_or_refused(text: str) -> None:
    for part in (image(text), audio(text), image(f"data:{text}")):
        with pytest.raises(ApiError) as caught:
            built(part)
        assert caught.value.status == 400
