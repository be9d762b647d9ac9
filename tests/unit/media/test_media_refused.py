"""What cannot be used is refused with words a client can act on, and with nothing else."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.media.decode import Kind, MediaError, MediaProblem
from runtime.settings import MediaLimits
from tests.support import media
from tests.unit.media.decoding import decoded


def refusal(data: bytes, kind: Kind, limits: MediaLimits | None = None) -> MediaError:
    with pytest.raises(MediaError) as caught:
        decoded(data, kind, limits=limits)
    assert caught.value.param == "messages[0]"
    return caught.value


@pytest.mark.parametrize("kind", ["audio", "video", "image"])
@pytest.mark.parametrize(
    "data", [b"", b"plain text", bytes(4096), b"#EXTM3U\nfile:///etc/passwd\n"]
)
def test_what_is_not_media_is_refused(kind: Kind, data: bytes):
    assert refusal(data, kind).code is MediaProblem.NOT_MEDIA


def test_a_list_that_names_files_of_this_machine_is_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "secret.mp4").write_bytes(media.clip())
    monkeypatch.chdir(tmp_path)
    listed = b"ffconcat version 1.0\nfile secret.mp4\n"
    assert refusal(listed, "video").code is MediaProblem.NOT_MEDIA


def test_a_cut_off_mp4_without_its_index_is_refused():
    error = refusal(media.truncated(media.clip()), "video")
    assert error.code is MediaProblem.NOT_MEDIA
    assert "cut off" in error.message


def test_a_missing_stream_is_named():
    assert "no video stream" in refusal(media.spoken_wav(), "video").message
    assert "no audio stream" in refusal(media.clip(sound=None), "audio").message


def test_a_clip_beyond_the_longest_names_the_limit():
    error = refusal(media.clip(4.0), "video", MediaLimits(clip_seconds=3.0))
    assert error.code is MediaProblem.TOO_LONG
    assert error.too_large
    assert "3 s (limits.clip_seconds)" in error.message


def test_sound_that_hides_its_length_is_stopped_at_the_limit():
    hidden = bytearray(media.wav(media.tone(4.0)))
    hidden[40:44] = b"\xff\xff\xff\xff"  # as a stream writes it: the size is not known yet
    assert refusal(bytes(hidden), "audio", MediaLimits(clip_seconds=3.0)).too_large


def test_a_video_with_too_many_pixels_names_the_limit():
    error = refusal(media.clip(), "video", MediaLimits(pixels=320 * 240 - 1))
    assert error.code is MediaProblem.TOO_MANY_PIXELS
    assert "320x240" in error.message


def test_a_video_that_unpacks_to_too_much_is_stopped_on_the_way():
    frame = 320 * 240 * 3
    error = refusal(media.clip(4.0), "video", MediaLimits(decoded_bytes=3 * frame))
    assert error.code is MediaProblem.TOO_MANY_BYTES
    assert error.too_large
    assert "limits.decoded_bytes" in error.message


def test_a_clip_that_takes_too_long_to_decode_is_given_up():
    error = refusal(media.clip(2.0), "video", MediaLimits(decode_seconds=0.001))
    assert error.code is MediaProblem.TOO_SLOW
    assert error.too_large
    assert "limits.decode_seconds" in error.message


def test_a_clip_of_more_frames_than_any_camera_takes_is_refused():
    flood = media.clip(1.0, width=32, height=32, fps=500.0, sound=None)
    error = refusal(flood, "video", MediaLimits(clip_seconds=1.5))
    assert error.code is MediaProblem.TOO_LONG
    assert "360 video frames" in error.message


@pytest.mark.parametrize("side", [5_000, 12_000, 60_000])
def test_a_picture_that_would_unpack_to_gigabytes_is_refused_by_its_header(side: int):
    assert refusal(media.png_that_claims(side, side), "image").code is MediaProblem.TOO_MANY_PIXELS


def test_a_cut_off_picture_is_refused():
    assert refusal(media.truncated(media.png()), "image").code is MediaProblem.NOT_MEDIA


def test_a_video_whose_every_frame_is_gone_is_refused():
    hollow = media.remux(media.clip(), "mp4", lambda kind, i, raw: bytes(len(raw)))
    assert refusal(hollow, "video").code is MediaProblem.NO_FRAMES


def test_an_audio_file_of_no_samples_is_refused():
    assert refusal(media.wav(media.tone(0.0)), "audio").code in {
        MediaProblem.NO_FRAMES,
        MediaProblem.NOT_MEDIA,
    }


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(["audio", "video", "image"]))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes, kind: Kind):
    with suppress(MediaError):
        decoded(data, kind)


FILES: dict[str, tuple[Kind, Callable[[], bytes]]] = {
    "mp4": ("video", lambda: media.clip(0.4, width=64, height=64)),
    "webm": ("video", lambda: media.clip(0.4, width=64, height=64, container="webm")),
    "wav": ("audio", lambda: media.wav(media.tone(0.2))),
    "png": ("image", lambda: media.png(32, 32)),
}


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4))),
    st.floats(0.2, 1.0),
)
def test_a_real_file_with_bytes_overwritten_is_decoded_or_refused(
    name: str, patches: list[tuple[float, bytes]], share: float
):
    kind, make = FILES[name]
    whole = make()
    data = bytearray(whole[: round(len(whole) * share)])
    for where, patch in patches:
        at = int(where * len(data))
        data[at : at + len(patch)] = patch
    with suppress(MediaError):
        assert decoded(bytes(data), kind).slices


@pytest.mark.parametrize("matrix", [8, 10, 14])
def test_colours_that_cannot_be_scaled_are_named_and_no_damage(matrix: int):
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as file:
        stream = file.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        stream.codec_context.colorspace = matrix
        for i in range(10):
            frame = av.VideoFrame(64, 64, "yuv420p")
            frame.colorspace, frame.pts = matrix, i
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    error = refusal(out.getvalue(), "video")
    assert error.code is MediaProblem.UNSUPPORTED
    assert "colours" in error.message
    assert not error.damaged


def test_a_clip_without_a_whole_frame_tells_what_was_seen_of_it():
    whole = media.clip(sound=None)
    with av.open(io.BytesIO(whole)) as source:
        packets = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    broken = bytearray(whole)
    for packet in packets:
        at = whole.index(packet)
        broken[at + 8 : at + len(packet)] = bytes(len(packet) - 8)
    error = refusal(bytes(broken), "video")
    assert error.code is MediaProblem.NO_FRAMES
    rules = {fault.rule for finding in error.findings for fault in finding.faults}
    assert rules & {"decode_error", "syntax", "hole"}
