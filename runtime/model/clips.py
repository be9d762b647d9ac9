"""Which neighbouring slices of a turn belong to one clip: those of one item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitors.labels import Modality
from runtime.residents.port import AudioPart, ImagePart, Part, TextPart, VideoPart

Slice = AudioPart | VideoPart


@dataclass(frozen=True)
class Clip:
    """Slices of one media item on one millisecond axis, in the order of their tokens."""

    slices: tuple[Slice, ...]

    @property
    def item(self) -> int | None:
        """Which media item of the request it is; None where the slices do not tell."""
        return self.slices[0].item

    @property
    def modalities(self) -> frozenset[Modality]:
        return frozenset(modality_of(part) for part in self.slices)


def modality_of(part: Part) -> Modality:
    """The modality of one part's tokens."""
    match part:
        case TextPart():
            return Modality.TEXT
        case ImagePart():
            return Modality.IMAGE
        case AudioPart():
            return Modality.AUDIO
        case VideoPart():
            return Modality.VIDEO


def group(parts: Sequence[Part]) -> Iterator[TextPart | ImagePart | Clip]:
    """Text and images as they stand; runs of slices as clips.

    Slices of one item are one clip, wherever in it they start: pictures stand before the sound of
    their stretch, and the first of them may come later than that sound. Slices that name no item
    go on with the clip before them while time does: not before the last slice, later than the
    last of their own kind, and sound behind the pictures of the same moment; an empty text keeps
    two of them apart.
    """
    clip: list[Slice] = []
    for part in parts:
        slice_ = part if isinstance(part, AudioPart | VideoPart) else None
        if clip and (slice_ is None or not _goes_on(clip, slice_)):
            yield Clip(tuple(clip))
            clip = []
        if slice_ is not None:
            clip.append(slice_)
        elif isinstance(part, TextPart | ImagePart):
            yield part
    if clip:
        yield Clip(tuple(clip))


def _goes_on(clip: Sequence[Slice], part: Slice) -> bool:
    last = clip[-1]
    if part.item is not None or last.item is not None:
        return part.item == last.item
    own = [earlier.start_ms for earlier in clip if type(earlier) is type(part)]
    if part.start_ms == last.start_ms:
        return isinstance(last, VideoPart) and isinstance(part, AudioPart)
    return part.start_ms > last.start_ms and part.start_ms > max(own, default=-1)
