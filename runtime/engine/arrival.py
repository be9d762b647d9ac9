"""Whether pixels reached the engine as the gateway sent them."""

from functools import partial

from monitors.detectors import operations
from monitors.detectors.finding import Gathering
from monitors.labels import Detector
from runtime.model.prompt import Prompt
from runtime.residents.port import VideoPart


def pixels_off(prompt: Prompt) -> operations.Difference | None:
    """How far the first key frame's slice is from what was sent, in grey levels. None: nothing
    was sent to compare it with, or the comparison broke, which is logged and harms nobody."""
    return Gathering(Detector.OPERATIONS).take(partial(_compare, prompt))


def _compare(prompt: Prompt) -> operations.Difference | None:
    for segment in prompt.segments:
        part = segment.part
        if isinstance(part, VideoPart) and part.key_frame and part.signature:
            assert segment.media is not None
            return operations.compare(part.signature, operations.signature(segment.media))
    return None
