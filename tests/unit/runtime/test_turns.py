"""From content to turns: slices in order, and media that is refused with the field's name."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import MediaRung
from monitors.labels import Detector, Judgement, Origin
from monitors.redlines import RedLines
from runtime import turns
from runtime.media.client_digest import digest_of, parse
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
    prompt = turns.Prompt()
    turns.build(asked, files or {}, how(**options), prompt)
    return prompt


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
    judged = {finding.detector: finding.judgement for finding in prompt.findings}
    assert judged.pop(Detector.LIP_SYNC) is Judgement.ABSTAINED, "two seconds tell nothing"
    assert set(judged.values()) == {Judgement.CLEAN}


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


# ---------------------------------------------------------------- what clients say of their bytes
def said_of(part: dict[str, Any], data: bytes) -> dict[str, Any]:
    part[part["type"]]["digest"] = digest_of(data)
    return part


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (video(data_url("video/mp4", CLIP)), CLIP),
        (image(data_url("image/png", PNG)), PNG),
        (audio(base64.b64encode(WAV).decode()), WAV),
    ],
    ids=["video", "image", "audio"],
)
def test_bytes_that_are_not_those_of_the_digest_are_told_and_still_taken(
    part: dict[str, Any], sent: bytes
) -> None:
    assert [f for one in built(said_of(part, sent)).findings for f in one.faults] == []
    prompt = built(said_of(part, sent + b"!"))
    (fault,) = [f for one in prompt.findings for f in one.faults]
    assert (fault.rule, fault.origin) == ("digest_mismatch", Origin.INPUT)
    assert prompt.arrays
    judged = [one.detector for one in prompt.findings]
    assert len(judged) == len(set(judged)), "one finding of each detector, for each item"


def test_an_upload_is_checked_against_its_headers_too() -> None:
    asked = ChatRequest.model_validate(
        {"model": "redline", "messages": [{"role": "user", "content": [image("attachment:a")]}]}
    )
    for data, rules in ((PNG, []), (b"another", ["digest_mismatch"])):
        said = replace(how(), digests={"a": parse(digest_of(data))})
        prompt = turns.Prompt()
        turns.build(asked, {"a": PNG}, said, prompt)
        assert [f.rule for one in prompt.findings for f in one.faults] == rules


def test_damage_that_leaves_nothing_to_decode_is_refused_with_its_cause() -> None:
    error = refusal(said_of(video(data_url("video/mp4", CLIP[:300])), CLIP))
    assert error.status == 400
    assert "not those that its digest names: send it again" in error.message


def one_bit_flipped(clip: bytes, packet: int) -> bytes:
    """A VP9 clip with one bit near the end of one packet changed: some decode without a word."""

    def flip(kind: str, index: int, raw: bytes) -> bytes:
        if (kind, index) != ("video", packet):
            return raw
        at = min(len(raw) - 1, round(0.97 * len(raw)))
        return raw[:at] + bytes([raw[at] ^ 8]) + raw[at + 1 :]

    return media.remux(clip, "webm", flip)


def test_every_damaged_vp9_clip_is_told_where_the_client_says_what_it_sent() -> None:
    clip = media.remux(
        media.clip(0.8, width=64, height=48, container="webm"), "webm", lambda *a: a[2]
    )
    silent = 0
    for packet in range(1, 20):  # without the first nothing decodes, and the client is told
        broken = one_bit_flipped(clip, packet)
        part = said_of(video(data_url("video/webm", broken)), clip)
        (finding,) = (f for f in built(part).findings if f.detector is Detector.BITSTREAM)
        rules = {fault.rule for fault in finding.faults}
        assert "digest_mismatch" in rules, packet
        silent += rules == {"digest_mismatch"}
    assert silent > 0, "else the decoder would have told without a digest"
