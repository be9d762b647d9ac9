"""Decodes test media with the project's own limits and ladder."""

from monitors.contract import MediaRung
from monitors.redlines import LadderLines
from runtime.media.decode import Clip, Kind, decode
from runtime.media.fidelity import fidelity_of
from runtime.media.slices import AudioSlice, VideoSlice
from runtime.settings import MediaLimits


def decoded(
    data: bytes,
    kind: Kind = "video",
    *,
    rung: MediaRung = MediaRung.FULL,
    limits: MediaLimits | None = None,
    fps: float = 2.0,
) -> Clip:
    """The clip as the gateway would decode it."""
    return decode(
        data,
        kind=kind,
        limits=limits or MediaLimits(),
        fidelity=fidelity_of(rung, LadderLines()),
        param="messages[0]",
        fps=fps,
    )


def video_slices(clip: Clip) -> list[VideoSlice]:
    return [piece for piece in clip.slices if isinstance(piece, VideoSlice)]


def audio_slices(clip: Clip) -> list[AudioSlice]:
    return [piece for piece in clip.slices if isinstance(piece, AudioSlice)]
