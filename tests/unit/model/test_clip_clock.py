"""Sound and picture of one real clip stand on one clock in the prompt, whichever starts first."""

import base64

import numpy as np
import pytest
from msgspec.structs import replace

from monitors.contract import MediaRung
from monitors.detectors import model_clock
from monitors.labels import Modality
from monitors.redlines import RedLines
from runtime import turns
from runtime.media.fidelity import fidelity_of
from runtime.model.clips import Clip, group
from runtime.model.processor import Processor
from runtime.model.prompt import Prompt
from runtime.openai_api import ChatRequest
from runtime.residents.port import AudioPart, VideoPart
from runtime.settings import MediaLimits
from tests.support import media
from tests.unit.model.dense import APART, Media, user

SECONDS = 6.0
UNIT_MS = 1000.0 / 13.0


def built(*clips: bytes) -> turns.Prompt:
    """As the gateway makes it."""
    content = [
        {
            "type": "video_url",
            "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(clip).decode()}"},
        }
        for clip in clips
    ]
    asked = {"model": "redline", "messages": [{"role": "user", "content": content}]}
    lines = RedLines()
    how = turns.Decoding(
        limits=MediaLimits(),
        fidelity=fidelity_of(MediaRung.FULL, lines.ladder),
        fps=2.0,
        slices=lines.scheduler,
    )
    prompt = turns.Prompt()
    turns.build(ChatRequest.model_validate(asked), {}, how, prompt)
    return prompt


def clip(offset_ms: float, seconds: float = SECONDS) -> bytes:
    """Audio minus video; the other of both starts at 0."""
    return media.clip(seconds, width=64, height=48, audio_offset_ms=offset_ms)


def starts(prompt: Prompt) -> list[tuple[Modality, float, int]]:
    """Modality, time and position of the first token of each slice."""
    return [
        (s.modality, float(s.part.start_ms), int(prompt.positions[0, s.start]))
        for s in prompt.segments
        if isinstance(s.part, AudioPart | VideoPart)
    ]


@pytest.mark.parametrize("offset_ms", [-60.0, 60.0, -300.0, 300.0, -2300.0])
def test_a_clip_is_one_clip_on_one_clock_whichever_starts_first(
    processor: Processor, offset_ms: float
) -> None:
    asked = built(clip(offset_ms))
    assert sum(isinstance(item, Clip) for item in group(asked.turns[0].parts)) == 1
    prompt = processor.prompt(asked.turns, asked.arrays)
    placed = starts(prompt)
    assert {modality for modality, *_ in placed} == {Modality.AUDIO, Modality.VIDEO}
    zero = min(at for _, _, at in placed) - round(min(ms for _, ms, _ in placed) / UNIT_MS)
    for modality, ms, at in placed:
        apart = (at - zero) * UNIT_MS - ms
        assert abs(apart) <= UNIT_MS / 2 + 0.01, f"{modality} of {ms} ms stands {apart:+.0f} ms off"
    assert model_clock.faults(prompt.av_offset_ms, prompt.clock_error) == ()


def test_a_clip_whose_first_frame_is_at_zero_is_what_it_was(processor: Processor) -> None:
    asked = built(clip(0.0), clip(0.0, 3.0))
    by_times = [
        replace(turn, parts=tuple(replace(part, item=None) for part in turn.parts))  # pyright: ignore[reportArgumentType]
        for turn in asked.turns
    ]
    ours = processor.prompt(asked.turns, asked.arrays)
    before = processor.prompt(by_times, asked.arrays)
    assert np.array_equal(ours.ids, before.ids)
    assert np.array_equal(ours.positions, before.positions)
    assert [s.digest for s in ours.segments] == [s.digest for s in before.segments]


def test_two_short_items_side_by_side_are_two_clips(processor: Processor) -> None:
    """By their times alone, the second would go on with the first."""
    sound, picture = Media(), Media(seed=1)
    parts = [replace(sound.audio(), item=0), replace(picture.video(1000), index=1, item=1)]
    prompt = processor.prompt([user(*parts)], [*sound.arrays, *picture.arrays])
    assert prompt.av_offset_ms is None
    assert [modality for modality, *_ in starts(prompt)] == [Modality.AUDIO, Modality.VIDEO]


def test_an_item_that_is_torn_apart_is_seen_by_the_clock(processor: Processor) -> None:
    """Each part would be in step with a clock of its own; the item has one."""
    whole = Media()
    parts = [replace(part, item=0) for part in (whole.video(), whole.audio(), whole.audio(1000))]
    torn = processor.prompt([user(*parts[:2], APART, parts[2])], whole.arrays)
    assert torn.clock_error is not None
    assert "position_error" in {
        fault.rule for fault in model_clock.faults(torn.av_offset_ms, torn.clock_error)
    }
