"""What the Thinker is asked: token ids with their modality, position and media, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitors.detectors.model_clock import ClockError
from monitors.labels import Modality
from runtime.kv.tokens import CODE
from runtime.model.clip_time import ClipTime
from runtime.model.timeline import Positions, text_positions
from runtime.residents.port import Array, AudioPart, ImagePart, VideoPart

MediaPart = AudioPart | VideoPart | ImagePart


class PromptError(ValueError):
    """A request that cannot be turned into a prompt; the client can mend it."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens `[start, stop)` of a prompt: a run of text, or exactly one slice of media."""

    modality: Modality
    start: int
    stop: int
    part: MediaPart | None = None  # None: text
    media: Array | None = None  # samples (n,) of sound; frames (n, height, width, 3) of pictures

    @property
    def digest(self) -> str:
        """Identity of the media for cache keys; empty for text (its ids are its identity)."""
        return "" if self.part is None else self.part.digest


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token i sits at `positions[:, i]` (time, height, width), the axes of TMRoPE."""

    ids: NDArray[np.int64]  # (n,)
    modality: NDArray[np.int8]  # (n,), values of `runtime.kv.tokens.CODE`
    positions: Positions  # (3, n)
    user: NDArray[np.bool_]  # (n,), the tokens of user turns: what the Talker hears
    segments: tuple[Segment, ...]  # without gaps, in order
    next_position: int  # of the first generated token, on all three axes
    av_offset_ms: float | None  # audio minus video where slices start; None: no clip has both
    clock_error: ClockError | None  # the worst of all its clips; None: it has none

    def __len__(self) -> int:
        return len(self.ids)


class PromptBuilder:
    """Appends text and media slices; neighbouring texts become one segment.

    Set `user` while a user turn is written.
    """

    def __init__(self) -> None:
        self.user = False
        self.next_position = 0
        self._ids: list[NDArray[np.int64]] = []
        self._positions: list[Positions] = []
        self._modality: list[NDArray[np.int8]] = []
        self._user: list[NDArray[np.bool_]] = []
        self._segments: list[Segment] = []
        self._clips: list[ClipTime] = []
        self._zeros: dict[int, int] = {}  # of each media item, by its number
        self._length = 0

    def text(self, ids: Sequence[int]) -> None:
        """A run of text tokens, each one step on."""
        if not ids:
            return
        stop = self._length + len(ids)
        last = self._segments[-1] if self._segments else None
        if last is not None and last.modality is Modality.TEXT:
            self._segments[-1] = Segment(Modality.TEXT, last.start, stop)
        else:
            self._segments.append(Segment(Modality.TEXT, self._length, stop))
        positions = text_positions(self.next_position, len(ids))
        self._append(np.asarray(ids, np.int64), Modality.TEXT, positions)

    def media(
        self,
        part: MediaPart,
        modality: Modality,
        pad_id: int,
        positions: Positions,
        media: Array,
    ) -> None:
        """One slice: as many `pad_id` tokens as it has positions."""
        tokens = positions.shape[1]
        stop = self._length + tokens
        self._segments.append(Segment(modality, self._length, stop, part, media))
        self._append(np.full(tokens, pad_id, np.int64), modality, positions)

    def zero_of(self, item: int | None, base: int) -> int:
        """Where time 0 of a media item stands: at `base`, unless a part of it came before."""
        return base if item is None else self._zeros.setdefault(item, base)

    def stood(self, clip: ClipTime) -> None:
        """Note how far a clip's tokens stand from their times."""
        self._clips.append(clip)

    def build(self) -> Prompt:
        offsets = [o for clip in self._clips if (o := clip.av_offset_ms) is not None]
        worst = [clip.worst for clip in self._clips if clip.worst is not None]
        return Prompt(
            ids=np.concatenate(self._ids),
            modality=np.concatenate(self._modality),
            positions=np.concatenate(self._positions, axis=1),
            user=np.concatenate(self._user),
            segments=tuple(self._segments),
            next_position=self.next_position,
            av_offset_ms=max(offsets, key=abs, default=None),
            clock_error=max(worst, key=lambda one: abs(one.error_ms), default=None),
        )

    def _append(self, ids: NDArray[np.int64], modality: Modality, positions: Positions) -> None:
        self._ids.append(ids)
        self._modality.append(np.full(len(ids), CODE[modality], np.int8))
        self._positions.append(positions)
        self._user.append(np.full(len(ids), self.user))
        self._length += len(ids)
        self.next_position = max(self.next_position, int(positions.max()) + 1)
