"""Whole files to slices on the millisecond axis."""

import io

import av
import numpy as np
import pytest
from PIL import Image

from monitors.labels import Grade
from tests.support import media
from tests.unit.media.decoding import audio_slices, decoded, video_slices


def test_video_slices_last_two_seconds_and_audio_slices_one():
    clip = decoded(media.clip(4.0))
    assert [piece.start_ms for piece in video_slices(clip)] == [0, 2000]
    assert [piece.start_ms for piece in audio_slices(clip)] == [0, 1000, 2000, 3000]
    assert [len(piece.pcm) for piece in audio_slices(clip)] == [16_000] * 4
    assert clip.has_audio
    assert clip.has_video
    assert clip.duration_ms == pytest.approx(4000, abs=25)


def test_each_video_slice_stands_before_its_own_sound():
    kinds = [type(piece).__name__ for piece in decoded(media.clip(4.0)).slices]
    assert kinds == ["VideoSlice", "AudioSlice", "AudioSlice"] * 2


def test_only_the_first_video_slice_holds_the_first_key_frame():
    assert [piece.key_frame for piece in video_slices(decoded(media.clip(4.0)))] == [True, False]


def test_frames_are_rgb_pictures_of_what_was_encoded():
    frames = video_slices(decoded(media.clip()))[0].frames
    sent = list(media.frames(50, 320, 240))
    assert frames.shape == (4, 240, 320, 3)
    assert frames.dtype == np.uint8
    apart = np.abs(frames[1].astype(int) - sent[12]).mean()  # frame 12 of 25 a second: 480 ms
    assert apart < 6
    assert apart < np.abs(frames[1].astype(int) - sent[25]).mean()


def test_a_clip_filmed_upright_is_turned_upright():
    frames = video_slices(decoded(media.clip(turned=90)))[0].frames
    lying = video_slices(decoded(media.clip()))[0].frames
    assert np.abs(frames[0].astype(int) - np.rot90(lying[0])).mean() < 1


def test_late_sound_keeps_its_place_on_the_axis():
    sound = audio_slices(decoded(media.clip(audio_offset_ms=400, container="webm")))[0].pcm
    assert np.abs(sound[: 16 * 395]).max() < 1e-3
    assert np.abs(sound[16 * 420 : 16 * 500]).max() > 0.3


def test_a_hole_in_the_sound_stays_silent_instead_of_moving_the_rest_forward():
    whole = media.clip()
    holed = media.without_packets(whole, "audio", range(20, 30))
    before = np.concatenate([piece.pcm for piece in audio_slices(decoded(whole))])
    after = np.concatenate([piece.pcm for piece in audio_slices(decoded(holed))])
    assert len(before) == len(after)
    assert np.abs(after[16 * 450 : 16 * 600]).max() < 1e-3
    assert np.abs(after[16_000:] - before[16_000:]).max() < 0.05


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("mp3", "libmp3lame", 44_100), ("flac", "flac", 22_050), ("ogg", "libopus", 48_000)],
)
def test_any_usual_audio_file_becomes_the_same_tone_at_16_khz(
    container: str, codec: str, rate: int
):
    data = media.encoded_audio(media.tone(1.5, rate=rate), rate, container, codec)
    clip = decoded(data, "audio")
    assert not clip.has_video
    assert clip.report.faults == ()
    sound = np.concatenate([piece.pcm for piece in audio_slices(clip)])
    spectrum = np.abs(np.fft.rfft(sound[:16_000]))
    assert abs(int(spectrum.argmax()) - 440) <= 1
    assert np.sqrt((sound[1000:16_000] ** 2).mean()) == pytest.approx(0.5 / 2**0.5, rel=0.05)


def test_spoken_wav_is_cut_into_seconds_with_a_shorter_last_one():
    clip = decoded(media.spoken_wav(), "audio")
    sizes = [len(piece.pcm) for piece in audio_slices(clip)]
    assert set(sizes[:-1]) == {16_000}
    assert 0 < sizes[-1] <= 16_000
    assert clip.duration_ms == pytest.approx(len(media.speech()) * 1000 / media.SPEECH_HZ, abs=1)


def test_the_sound_alone_of_a_video_file_can_be_sent_as_audio():
    clip = decoded(media.clip(), "audio")
    assert clip.has_audio
    assert not clip.has_video
    assert clip.report.video is None


def test_a_very_short_sound_is_padded_to_one_token():
    (only,) = audio_slices(decoded(media.wav(media.tone(0.01)), "audio"))
    assert len(only.pcm) == 1280
    assert np.abs(only.pcm[160:]).max() == 0


def test_sound_that_is_not_a_number_reaches_nobody():
    broken = media.tone(1.0)
    broken[100:200], broken[300] = np.nan, np.inf
    data = media.encoded_audio(broken, 16_000, "wav", "pcm_f32le")
    (only,) = audio_slices(decoded(data, "audio"))
    assert np.abs(only.pcm).max() <= 1.0


def test_a_picture_is_one_slice_of_rgb_pixels():
    clip = decoded(media.png(96, 64), "image")
    (only,) = clip.slices
    assert np.array_equal(only.pixels, next(media.frames(1, 96, 64)))
    assert clip.report.faults == ()
    assert not clip.has_video


def as_png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def test_sixteen_bits_of_grey_keep_their_steps():
    ramp = np.tile(np.linspace(0, 65_535, 128).astype(np.uint16), (64, 1))
    (only,) = decoded(as_png(Image.fromarray(ramp)), "image").slices
    assert np.array_equal(only.pixels[..., 0], ramp >> 8)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_seen_on_white(mode: str):
    clear = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    clear.paste((200, 0, 0, 255), (0, 0, 32, 64))
    (only,) = decoded(as_png(clear.convert(mode)), "image").slices
    assert (only.pixels[:, 40:] == 255).all()
    assert (only.pixels[:, :20] != 255).any()


def test_the_same_bytes_give_the_same_digests():
    data = media.clip()
    assert [p.digest for p in decoded(data).slices] == [p.digest for p in decoded(data).slices]


def later(data: bytes, by_ms: int) -> bytes:
    """The same WebM, its time stamps moved."""
    out = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", format="webm") as target:
        streams = [target.add_stream_from_template(one) for one in source.streams]
        for packet in source.demux():
            if packet.pts is None or packet.dts is None:
                continue
            packet.pts, packet.dts = packet.pts + by_ms, packet.dts + by_ms
            packet.stream = streams[packet.stream.index]
            target.mux(packet)
    return out.getvalue()


@pytest.mark.parametrize("by_ms", [5_000, 118_000])
def test_a_recording_that_starts_late_on_its_clock_is_as_long_as_it_lasts(by_ms: int):
    clip = decoded(later(media.clip(4.0, container="webm"), by_ms))
    assert clip.duration_ms == pytest.approx(4000, abs=100)
    assert "early_end" not in {fault.rule for fault in clip.report.faults}


def test_a_recording_that_starts_late_and_breaks_off_ends_early():
    data = later(media.clip(4.0, container="webm"), 5_000)
    rules = {fault.rule for fault in decoded(media.truncated(data, 0.6)).report.faults}
    assert "early_end" in rules


@pytest.mark.parametrize("container", ["mp4", "matroska", "mpegts"])
@pytest.mark.parametrize("times_ms", [(0,), (0, 40), (0, 1000, 2500), tuple(range(0, 2000, 40))])
def test_a_picture_that_stands_still_while_the_sound_goes_on_has_not_broken_off(
    times_ms: tuple[int, ...], container: str
):
    clip = media.clip(6.0, width=64, height=48, frame_times_ms=times_ms)
    if container != "mp4":
        clip = media.remux(clip, container, lambda _, __, raw: raw)
    faults = decoded(clip).report.faults
    assert "early_end" not in {fault.rule for fault in faults}
    assert Grade.HARD not in {fault.grade for fault in faults}


@pytest.mark.parametrize("times_ms", [(0,), (0, 1000, 2500)])
def test_a_still_picture_in_a_file_that_breaks_off_ends_early(times_ms: tuple[int, ...]):
    clip = media.clip(6.0, width=64, height=48, frame_times_ms=times_ms)
    matroska = media.remux(clip, "matroska", lambda _, __, raw: raw)
    rules = {fault.rule for fault in decoded(media.truncated(matroska, 0.7)).report.faults}
    assert "early_end" in rules
