"""Turns and their media slices -> one prompt: marker tokens, media geometry, the time axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from monitors.labels import Modality
from runtime.model import timeline
from runtime.model.checkpoint import Checkpoint
from runtime.model.clip_time import ClipTime
from runtime.model.clips import Clip, group
from runtime.model.features import audio_tokens, grid_of
from runtime.model.prompt import MediaPart, Prompt, PromptBuilder, PromptError, Segment
from runtime.residents.port import Array, AudioPart, ImagePart, TextPart, Turn, VideoPart

__all__ = ["Processor", "Prompt", "PromptError", "Segment"]


class Processor:
    """Builds prompts for one checkpoint.

    The layout is Qwen3-Omni's: pictures between `<|vision_start|>` and `<|vision_end|>`, sound
    between `<|audio_start|>` and `<|audio_end|>`, a clip with both inside both. Only the order
    inside such a clip differs: each slice of video stands before the audio slices of its time,
    so that a cache block holds one modality. Every token keeps the position of its own time.

    Neighbouring slices of one media item are one clip (`runtime.model.clips`).
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._tokenizer: Any = checkpoint.tokenizer
        self._figures = checkpoint.figures
        thinker = checkpoint.config.thinker_config
        self._audio_pad = thinker.audio_token_id
        self._video_pad = thinker.video_token_id
        self._image_pad = thinker.image_token_id
        self._turn = self._marker("<|im_start|>"), self._marker("<|im_end|>")
        self._vision = self._marker("<|vision_start|>"), self._marker("<|vision_end|>")
        self._audio = self._marker("<|audio_start|>"), self._marker("<|audio_end|>")

    def prompt(
        self, turns: Sequence[Turn], arrays: Sequence[Array], *, audio_shift_ms: float = 0.0
    ) -> Prompt:
        """The prompt of `turns`, up to where the answer starts. Raises `PromptError`.

        `audio_shift_ms` moves the positions of sound against its true time: the desync drill.
        """
        if not turns:
            raise PromptError("the conversation is empty: send at least one turn")
        builder = PromptBuilder()
        for turn in turns:
            builder.user = turn.role == "user"
            builder.text([self._turn[0], *self._encode(f"{turn.role}\n")])
            for item in group(turn.parts):
                if isinstance(item, TextPart):
                    builder.text(self._encode(item.text))
                elif isinstance(item, ImagePart):
                    self._add_image(builder, item, arrays)
                else:
                    self._add_clip(builder, item, arrays, audio_shift_ms)
            builder.text([self._turn[1], *self._encode("\n")])
        builder.user = False
        builder.text([self._turn[0], *self._encode("assistant\n")])
        return builder.build()

    def _add_image(self, builder: PromptBuilder, part: ImagePart, arrays: Sequence[Array]) -> None:
        picture = _array(arrays, part, np.uint8, dimensions=3)
        height, width, _ = picture.shape
        grid = grid_of(1, height, width, self._figures)
        builder.text(self._vision[:1])
        positions = timeline.video_positions(
            builder.next_position, [0.0], grid, self._figures.merge, self._figures.units_per_s
        )
        builder.media(part, Modality.IMAGE, self._image_pad, positions, picture[None])
        builder.text(self._vision[1:])

    def _add_clip(
        self, builder: PromptBuilder, clip: Clip, arrays: Sequence[Array], audio_shift_ms: float
    ) -> None:
        vision = self._vision if Modality.VIDEO in clip.modalities else ()
        audio = self._audio if Modality.AUDIO in clip.modalities else ()
        builder.text([*vision[:1], *audio[:1]])
        base = builder.next_position
        time = ClipTime(base, self._figures.units_per_s, builder.zero_of(clip.item, base))
        for part in clip.slices:
            if isinstance(part, AudioPart):
                self._add_audio(builder, part, arrays, time, audio_shift_ms)
            else:
                self._add_video(builder, part, arrays, time)
        builder.stood(time)
        builder.text([*audio[1:], *vision[1:]])

    def _add_audio(
        self,
        builder: PromptBuilder,
        part: AudioPart,
        arrays: Sequence[Array],
        time: ClipTime,
        shift_ms: float,
    ) -> None:
        samples = _array(arrays, part, np.float32, dimensions=1)
        tokens = audio_tokens(len(samples), self._figures)
        units_per_s = self._figures.units_per_s
        positions = timeline.audio_positions(
            time.base, part.start_ms + shift_ms, tokens, units_per_s
        )
        times_ms = timeline.audio_times_ms(part.start_ms, tokens)
        time.stood(Modality.AUDIO, times_ms, positions[0])
        builder.media(part, Modality.AUDIO, self._audio_pad, positions, samples)

    def _add_video(
        self, builder: PromptBuilder, part: VideoPart, arrays: Sequence[Array], time: ClipTime
    ) -> None:
        frames = _array(arrays, part, np.uint8, dimensions=4)
        if len(part.pts_ms) != len(frames):
            raise PromptError(f"video slice: {len(frames)} frames, but {len(part.pts_ms)} times")
        figures = self._figures
        count, height, width, _ = frames.shape
        grid = grid_of(count, height, width, figures)
        firsts = part.pts_ms[:: figures.temporal_patch]
        positions = timeline.video_positions(
            time.base, firsts, grid, figures.merge, figures.units_per_s
        )
        each_grid = positions[0, :: positions.shape[1] // len(firsts)]
        time.stood(Modality.VIDEO, np.array(firsts, np.float64), each_grid)
        builder.media(part, Modality.VIDEO, self._video_pad, positions, frames)

    def _encode(self, text: str) -> list[int]:
        """Ids of plain text: a marker that somebody typed stays the letters it is made of."""
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def _marker(self, name: str) -> int:
        return self._tokenizer.convert_tokens_to_ids(name)


def _array(arrays: Sequence[Array], part: MediaPart, dtype: type, *, dimensions: int) -> Array:
    """The array behind a part, of the type and shape the port promises."""
    if not 0 <= part.index < len(arrays):
        raise PromptError(f"a part points at array {part.index}; {len(arrays)} arrays came with it")
    array = arrays[part.index]
    coloured = array.ndim == 1 or array.shape[-1] == 3
    if array.dtype != dtype or array.ndim != dimensions or array.size == 0 or not coloured:
        wanted = "(samples,)" if dimensions == 1 else "RGB in the last of its dimensions"
        raise PromptError(
            f"array {part.index}: expected {dimensions} dimensions of {dtype.__name__}, {wanted},"
            f" got {array.dtype} {array.shape}"
        )
    return array
