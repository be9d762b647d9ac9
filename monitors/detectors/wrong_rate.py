"""Which wrong rate, of samples or of frames, explains how long both streams of a clip last."""

SLACK_MS = 40.0  # what frames and padding leave open of a length

_STANDARD_FPS = (10.0, 12.0, 12.5, 15.0, 20.0, 24.0 / 1.001, 24.0, 25.0, 30.0 / 1.001, 30.0,
                 48.0, 50.0, 60.0 / 1.001, 60.0)  # fmt: skip
_FPS_SLACK = 0.003
_RATE_PAIRS = ((44.1, 48.0), (25.0, 30.0), (24.0, 30.0), (24.0, 25.0), (16.0, 24.0), (8.0, 16.0))


def explained(
    sound_ms: float, picture_ms: float, frames: int, span_ms: float
) -> tuple[str, str] | None:
    """The rule and its words; None where no usual rate explains it. `span_ms`: from the first of
    the `frames` to the last. None of the numbers may be 0."""
    for a, b in _RATE_PAIRS:
        apart = abs(sound_ms * a / b - picture_ms), abs(sound_ms * b / a - picture_ms)
        if min(apart) <= SLACK_MS:
            return "rate_mislabel", f"{a:g} taken for {b:g}, or reverse"
    fps = (frames - 1) * 1000.0 / span_ms
    if _standard(fps, _FPS_SLACK) is not None:
        return None
    meant = _standard(frames * 1000.0 / sound_ms, SLACK_MS / sound_ms)
    if meant is None:
        return None
    return "video_clock", f"its {fps:.2f} frames a second were {meant:.2f} when it was recorded"


def _standard(fps: float, slack: float) -> float | None:
    """The usual frame rate that this one is."""
    nearest = min(_STANDARD_FPS, key=lambda usual: abs(fps / usual - 1.0))
    return nearest if abs(fps / nearest - 1.0) <= slack else None
