"""Real media files for tests: made by real encoders, and broken on purpose."""

import io
import shutil
import struct
import subprocess
import wave
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

import av
import numpy as np
import soxr
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.stream import Stream
from numpy.typing import NDArray
from PIL import Image

Pcm = NDArray[np.float32]
CODECS = {"mp4": ("libx264", "aac"), "webm": ("libvpx-vp9", "libopus")}
FAST = {
    "libx264": {"preset": "ultrafast", "crf": "28", "bf": "0"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0"},
}
CLIP_HZ = 48_000
MILLISECOND = Fraction(1, 1000)


# ---------------------------------------------------------------- sound
def tone(seconds: float, hz: float = 440.0, rate: int = 16_000) -> Pcm:
    """A sine at half of full scale."""
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype("f4")


def noise(seconds: float, rate: int = 16_000) -> Pcm:
    """White noise: as loud above 4 kHz as below."""
    return np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * rate)).astype("f4")


@lru_cache(maxsize=64)
def speech(text: str = "The quick brown fox jumps over the lazy dog.", voice: str = "en") -> Pcm:
    """The text spoken by espeak-ng, mono at 22,050 Hz. Raises where espeak-ng is missing."""
    program = shutil.which("espeak-ng")
    if program is None:
        raise RuntimeError("espeak-ng is missing: apt-get install espeak-ng (or `make test`)")
    run = subprocess.run(
        [program, "--stdout", "-v", voice, text], capture_output=True, check=True, timeout=30
    )
    return np.frombuffer(run.stdout[44:], "<i2").astype("f4") / 32768.0


SPEECH_HZ = 22_050


def wav(pcm: Pcm, rate: int = 16_000) -> bytes:
    """The sound as a mono 16-bit WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(int16(pcm))
    return out.getvalue()


def spoken_wav(text: str = "The quick brown fox jumps over the lazy dog.") -> bytes:
    """A WAV file of somebody saying `text`."""
    return wav(speech(text), SPEECH_HZ)


def int16(pcm: Pcm) -> bytes:
    """The sound as int16 little-endian samples."""
    return (np.clip(pcm, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()


def encoded_audio(pcm: Pcm, rate: int, container: str, codec: str) -> bytes:
    """The sound as another kind of audio file, say ("mp3", "libmp3lame") or ("ogg", "libopus")."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        _write(file, file.add_stream(codec, rate, layout="mono"), pcm, rate, start_ms=0.0)
    return out.getvalue()


# ---------------------------------------------------------------- pictures
def frames(count: int, width: int, height: int) -> Iterator[NDArray[np.uint8]]:
    """A red square that moves over a colourful gradient, RGB."""
    y, x = np.mgrid[0:height, 0:width]
    ground = np.stack((40 + x * 150 // width, 60 + y * 150 // height, 120 + 0 * x), axis=2)
    side = max(2, min(width, height) // 4)
    for i in range(count):
        picture = ground.astype(np.uint8)
        left, top = (5 * i) % max(1, width - side), (3 * i) % max(1, height - side)
        picture[top : top + side, left : left + side] = (220, 30, 30)
        yield picture


def png(width: int = 96, height: int = 96) -> bytes:
    """A picture of the moving square, standing still."""
    out = io.BytesIO()
    Image.fromarray(next(frames(1, width, height))).save(out, "PNG")
    return out.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A small PNG whose header promises `width` x `height` pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    honest = png()
    return honest[:12] + header + struct.pack(">I", zlib.crc32(header)) + honest[33:]


# ---------------------------------------------------------------- clips
@lru_cache(maxsize=64)
def clip(
    seconds: float = 2.0,
    *,
    width: int = 320,
    height: int = 240,
    fps: float = 25.0,
    container: str = "mp4",
    sound: str | None = "tone",
    audio_offset_ms: float = 0.0,
    frame_times_ms: tuple[int, ...] | None = None,
    turned: int = 0,
    fragmented: bool = False,
) -> bytes:
    """A video file: H.264 + AAC in "mp4", VP9 + Opus in "webm".

    `sound`: "tone", "speech" or None. `audio_offset_ms`: audio minus video, early negative.
    `frame_times_ms` makes the frame rate variable. `turned`: degrees to turn it upright.
    `fragmented` puts the index of an MP4 in front, so that its first part can be read alone.
    """
    times = frame_times_ms or tuple(round(i * 1000 / fps) for i in range(round(seconds * fps)))
    return video_file(
        frames(len(times), width, height),
        times,
        None if sound is None else _clip_sound(sound, seconds),
        size=(width, height),
        fps=fps,
        container=container,
        audio_offset_ms=audio_offset_ms,
        turned=turned,
        fragmented=fragmented,
    )


def video_file(
    pictures: Iterable[NDArray[np.uint8]],
    times_ms: Sequence[int],
    pcm: Pcm | None,
    *,
    size: tuple[int, int],
    fps: float = 25.0,
    container: str = "mp4",
    audio_offset_ms: float = 0.0,
    turned: int = 0,
    fragmented: bool = False,
) -> bytes:
    """A video file of RGB pictures shown at `times_ms`, and of sound at `CLIP_HZ`.

    `size`: width and height. The rest as `clip` has it.
    """
    early_ms = max(0.0, -audio_offset_ms)
    video_codec, audio_codec = CODECS[container]
    out = io.BytesIO()
    with av.open(out, "w", format=container, options=_mux_options(fragmented)) as file:
        stream = file.add_stream(video_codec, rate=Fraction(fps).limit_denominator(1000))
        (stream.width, stream.height), stream.pix_fmt = size, "yuv420p"
        stream.options = FAST[video_codec]
        stream.codec_context.time_base = MILLISECOND
        stream.codec_context.gop_size = round(fps)
        if turned:
            stream.set_display_rotation(turned)
        audio = None if pcm is None else file.add_stream(audio_codec, CLIP_HZ, layout="mono")
        for at, picture in zip(times_ms, pictures, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = at + round(early_ms), MILLISECOND
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        if audio is not None:
            _write(file, audio, pcm, CLIP_HZ, early_ms + audio_offset_ms)
    return out.getvalue()


def _mux_options(fragmented: bool) -> dict[str, str]:
    return {"movflags": "frag_keyframe+empty_moov"} if fragmented else {}


def _clip_sound(sound: str | None, seconds: float) -> Pcm:
    if sound == "tone":
        return tone(seconds, rate=CLIP_HZ)
    spoken = soxr.resample(speech(), SPEECH_HZ, CLIP_HZ)[: round(seconds * CLIP_HZ)]
    return np.pad(spoken, (0, round(seconds * CLIP_HZ) - len(spoken)))


def _write(
    file: OutputContainer, stream: AudioStream, pcm: Pcm, rate: int, start_ms: float
) -> None:
    for start in range(0, len(pcm), 1024):
        piece = pcm[None, start : start + 1024]
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), "flt", "mono")
        frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
        frame.pts = start + round(start_ms * rate / 1000)
        file.mux(stream.encode(frame))
    file.mux(stream.encode(None))


# ---------------------------------------------------------------- damage
def remux(data: bytes, container: str, edit: Callable[[str, int, bytes], bytes | None]) -> bytes:
    """The same packets again, each as `edit(kind, index, payload)` returns it; None drops it.

    `kind` is "video" or "audio", `index` counts the packets of that kind.
    """
    out = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", format=container) as target:
        streams = {one.index: target.add_stream_from_template(one) for one in source.streams}
        seen: dict[str, int] = {}
        for packet in source.demux():
            if packet.dts is None:
                continue
            kind = packet.stream.type
            index = seen[kind] = seen.get(kind, -1) + 1
            payload = edit(kind, index, bytes(packet))
            if payload is not None:
                target.mux(_copy(packet, payload, streams[packet.stream.index]))
    return out.getvalue()


def _copy(packet: av.Packet, payload: bytes, stream: Stream) -> av.Packet:
    copy = av.Packet(payload)
    copy.pts, copy.dts, copy.duration = packet.pts, packet.dts, packet.duration
    copy.time_base, copy.is_keyframe = packet.time_base, packet.is_keyframe
    copy.stream = stream
    return copy


def without_packets(
    data: bytes, kind: str, indices: Sequence[int], container: str = "mp4"
) -> bytes:
    """The file without these packets of the "video" or "audio" stream."""
    gone = set(indices)
    return remux(data, container, lambda k, i, raw: None if k == kind and i in gone else raw)


def with_flipped_bits(data: bytes, indices: Sequence[int], container: str = "mp4") -> bytes:
    """The file with 40 bits flipped in each of these video packets, past their headers."""
    random = np.random.default_rng(1)

    def flip(kind: str, index: int, raw: bytes) -> bytes:
        if kind != "video" or index not in indices:
            return raw
        broken = bytearray(raw)
        for at in random.integers(min(12, len(raw) - 1), len(raw), 40):
            broken[at] ^= 1 << int(random.integers(8))
        return bytes(broken)

    return remux(data, container, flip)


def truncated(data: bytes, share: float = 0.6) -> bytes:
    """The first part of the file, as a broken upload leaves it."""
    return data[: round(len(data) * share)]
