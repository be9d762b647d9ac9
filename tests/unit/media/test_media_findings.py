"""Decoding lets every video detector speak, and uses decoders that notice damage."""

import io
from dataclasses import replace

import av
import numpy as np
import pytest

from monitors.detectors.finding import Abstained
from monitors.labels import Detector, Grade, Judgement, Origin
from runtime.media.clock import GridSampler
from runtime.media.decode import Clip, MediaError
from runtime.media.fidelity import Fidelity
from tests.faults.bitstream import BitstreamFault, damage, inject
from tests.faults.encodings import Coding, clip_of, decoded_luma, encoded
from tests.faults.patterns import masks, painted
from tests.faults.pictures import Content, Footage, footage
from tests.faults.pixel import PixelFault, damaged
from tests.support import media
from tests.unit.media.decoding import decoded, video_slices

OF_VIDEO = (Detector.BITSTREAM, Detector.PIXELS, Detector.OPERATIONS)


def judgements(clip: Clip) -> dict[Detector, Judgement]:
    return {f.detector: f.judgement for f in clip.report.findings if f.detector in OF_VIDEO}


@pytest.mark.parametrize("coding", list(Coding))
def test_every_video_detector_finds_a_whole_clip_clean(coding: Coding):
    clip = decoded(clip_of(Content.MOTION, coding).file)
    assert judgements(clip) == dict.fromkeys(OF_VIDEO, Judgement.CLEAN)
    assert all(finding.cpu_s > 0 for finding in clip.report.findings)


@pytest.mark.parametrize("fault", list(BitstreamFault))
@pytest.mark.parametrize("coding", list(Coding))
def test_damage_that_can_be_seen_is_found(coding: Coding, fault: BitstreamFault):
    coded = clip_of(Content.MOTION, coding)
    broken = inject(coded, fault, 3)
    try:
        found = decoded(broken).report.faults
    except MediaError:
        return  # told as clearly as can be
    assert found or not damage(decoded_luma(coded.file), decoded_luma(broken)).visible
    assert {one.origin for one in found} <= {Origin.INPUT}


def test_a_clip_that_shows_green_is_told_apart_from_a_broken_stream():
    shown = footage(Content.MOTION, 1)
    green, _ = damaged(shown.frames, PixelFault.HALF_GREEN, 1)
    clip = decoded(encoded(Footage(shown.content, green, shown.times_ms), Coding.H264).file)
    assert judgements(clip)[Detector.BITSTREAM] is Judgement.CLEAN
    (fault,) = (one for one in clip.report.faults if one.grade is Grade.HARD)
    assert (fault.rule, fault.origin) == ("green", Origin.INPUT)


def test_a_still_picture_in_a_codec_of_key_frames_alone_is_not_called_frozen():
    out = io.BytesIO()
    with av.open(out, "w", format="avi") as file:
        stream = file.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuvj420p"
        picture = next(media.frames(1, 320, 240))
        for i in range(40):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuvj420p")
            frame.pts = i
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    assert len(out.getvalue()) > 40 * 1000
    assert decoded(out.getvalue()).report.faults == ()


def test_filler_in_the_packets_of_a_shared_screen_is_no_sign_of_motion():
    out = io.BytesIO()
    picture = next(media.frames(1, 320, 240))
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.bit_rate = 500_000
        rate = dict.fromkeys(("b", "maxrate", "minrate", "bufsize"), "500k")
        stream.options = {"tune": "zerolatency", "x264-params": "nal-hrd=cbr:filler=1", **rate}
        for i in range(60):
            shown = np.roll(picture, 4 * i if i < 15 else 60, axis=1)
            frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
            frame.pts = i
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    assert len(out.getvalue()) > 60 * 1000
    assert "freeze" not in {fault.rule for fault in decoded(out.getvalue()).report.faults}


def test_our_own_mistake_is_blamed_on_the_pipeline(monkeypatch: pytest.MonkeyPatch):
    right = Fidelity.picture
    monkeypatch.setattr(
        Fidelity, "picture", lambda *given: np.ascontiguousarray(right(*given)[..., ::-1])
    )
    clip = decoded(media.clip())
    assert judgements(clip)[Detector.OPERATIONS] is Judgement.HARD
    (fault,) = clip.report.faults
    assert (fault.rule, fault.origin) == ("picture_altered", Origin.PIPELINE)


@pytest.mark.parametrize("coding", [Coding.H264, Coding.VP9, Coding.AV1])
@pytest.mark.parametrize(
    ("one", "other", "name"), [("black", "red", "columns"), ("red", "blue", "pairs of columns")]
)
def test_a_client_that_draws_fine_columns_does_not_hurt_the_pipeline(
    coding: Coding, one: str, other: str, name: str
):
    picture = np.asarray(painted(masks(640, 360)[name], one, other).to_ndarray(), np.uint8)
    still = Footage(Content.SLIDES, np.stack([picture] * 10), tuple(range(0, 400, 40)))
    clip = decoded(encoded(still, coding).file)
    assert Origin.PIPELINE not in {fault.origin for fault in clip.report.faults}


@pytest.mark.parametrize("size", [(16, 16), (24, 24), (30, 64), (320, 30), (18, 320)])
def test_a_clip_too_small_to_be_compared_is_decoded_and_not_judged(size: tuple[int, int]):
    clip = decoded(media.clip(0.4, width=size[0], height=size[1], sound=None))
    verdicts = {one.detector: one.verdict for one in clip.report.findings}
    assert verdicts[Detector.OPERATIONS] == Abstained("no frame is large enough")
    assert clip.report.faults == ()


def test_pictures_in_a_format_without_luma_are_not_judged():
    out = io.BytesIO()
    with av.open(out, "w", format="avi") as file:
        stream = file.add_stream("rawvideo", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "bgr24"
        for i, picture in enumerate(media.frames(10, 64, 48)):
            frame = av.VideoFrame.from_ndarray(picture, format="bgr24")
            frame.pts = i
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    findings = {f.detector: f.verdict for f in decoded(out.getvalue()).report.findings}
    unread = Abstained("frames in bgr24 cannot be read here")
    assert findings[Detector.PIXELS] == findings[Detector.OPERATIONS] == unread
    assert findings[Detector.BITSTREAM] == ()


def test_a_turned_clip_stands_upright_in_every_codec():
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libvpx-vp9", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.options = media.FAST["libvpx-vp9"]
        stream.set_display_rotation(90)
        for i, picture in enumerate(media.frames(10, 320, 240)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = i
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    vp9, h264 = decoded(out.getvalue()), decoded(media.clip(0.4, turned=90))
    ours, theirs = (video_slices(clip)[0].frames[0].astype(int) for clip in (vp9, h264))
    assert ours.shape == theirs.shape == (320, 240, 3)
    assert np.abs(ours - theirs).mean() < 8
    assert judgements(vp9) == dict.fromkeys(OF_VIDEO, Judgement.CLEAN)


@pytest.mark.parametrize("coding", [Coding.VP9, Coding.AV1])
def test_one_turned_bit_is_noticed_by_the_decoder(coding: Coding):
    coded = clip_of(Content.MOTION, coding)
    packet = max(coded.pieces[1:], key=lambda piece: len(piece.data))
    broken = bytearray(packet.data)
    broken[len(broken) // 2] ^= 16
    pieces = [
        piece
        if piece is not packet
        else type(piece)(bytes(broken), *list(vars(piece).values())[1:])
        for piece in coded.pieces
    ]
    found = {fault.rule for fault in decoded(coded.with_pieces(pieces)).report.faults}
    assert "decode_error" in found


def test_frames_that_are_picked_by_their_number_are_our_own_fault(monkeypatch: pytest.MonkeyPatch):
    right = GridSampler.feed
    behind: list[object] = []

    def by_number(self: GridSampler[object], frame: object, ms: float):  # a second behind
        behind.append(frame)
        for sample in right(self, frame, ms):
            yield replace(sample, frame=behind[max(0, len(behind) - 26)])

    monkeypatch.setattr(GridSampler, "feed", by_number)
    (fault,) = (f for f in decoded(media.clip(seconds=3.0)).report.faults if f.rule == "grid_error")
    assert (fault.origin, fault.grade) == (Origin.PIPELINE, Grade.HARD)
