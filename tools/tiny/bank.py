"""Seconds of sound and pictures, encoded once: the warm encoders then rest.

Both encoders look at one second at a time, so that an encoded second can stand in any clip. Three
quarters of a training step are spared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.model.checkpoint import MediaFigures
from runtime.model.features import LogMel, patches
from runtime.quality.scenes import AUDIO_HZ, FPS, Scene, Size, draw_scene, pictures, soundtrack
from runtime.quality.words import COLOURS, DIGITS, SHAPES
from tools.tiny.lessons import PICTURE_TOKENS

SOUND_SECONDS = 6000
PICTURE_TOKENS_EACH = 24_000  # of one size, but no more seconds than
PICTURE_SECONDS = 2400
TAILS, TAIL_TOKENS = 64, 6  # encoders pad: a real clip's sound is a little longer than its pictures
TOKEN_SAMPLES = 1280
_AT_ONCE = 40


@dataclass(frozen=True, eq=False)
class Pictures:
    """Seconds of one size: `emb` and `deep` (n, tokens, H), by place of their content."""

    emb: Tensor
    deep: Tensor
    places: list[NDArray[np.int64]]  # by colour * len(SHAPES) + shape

    def state(self) -> dict[str, Any]:
        """As `Bank.state`."""
        places = [torch.from_numpy(found) for found in self.places]
        return {"emb": self.emb, "deep": self.deep, "places": places}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Pictures":
        places = [found.numpy() for found in state["places"]]
        return cls(state["emb"], state["deep"], places)


@dataclass(frozen=True, eq=False)
class Bank:
    sound: Tensor  # (n, 13, H)
    digits: list[NDArray[np.int64]]  # places by digit
    tails: list[Tensor]  # (n, k, H) for k = 1 .. TAIL_TOKENS: what sounds after the last second
    pictures: dict[Size, Pictures]

    def state(self) -> dict[str, Any]:
        """Tensors in lists and dicts alone: what `torch.load(weights_only=True)` takes."""
        return {
            "sound": self.sound,
            "digits": [torch.from_numpy(found) for found in self.digits],
            "tails": self.tails,
            "pictures": {size: seen.state() for size, seen in self.pictures.items()},
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Bank":
        """The bank that `state` was taken of."""
        return cls(
            sound=state["sound"],
            digits=[found.numpy() for found in state["digits"]],
            tails=state["tails"],
            pictures={size: Pictures.of(seen) for size, seen in state["pictures"].items()},
        )

    def hear(self, scene: Scene, tail: int, rng: np.random.Generator) -> Tensor:
        """The sound of a scene and `tail` tokens behind it, (seconds * 13 + tail, H)."""
        drawn = [rng.choice(self.digits[digit]) for digit in scene.digits]
        heard = self.sound[drawn].flatten(0, 1)
        if tail == 0:
            return heard
        return torch.cat([heard, self.tails[tail - 1][rng.integers(TAILS)]])

    def see(self, scene: Scene, size: Size, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The pictures of a scene and their deepstack level, (seconds * tokens, H) each."""
        of = self.pictures[size]
        drawn = [
            rng.choice(of.places[colour * len(SHAPES) + shape])
            for colour, shape in zip(scene.colours, scene.shapes, strict=True)
        ]
        return of.emb[drawn].flatten(0, 1), of.deep[drawn].flatten(0, 1)


@torch.no_grad()
def fill(model: Any, figures: MediaFigures, rng: np.random.Generator, *, shrink: int = 1) -> Bank:
    """Draw and encode until everything is there. `shrink`: a bank so much smaller, for trials."""
    sound, digits = list[Tensor](), list[int]()
    while len(digits) < SOUND_SECONDS // shrink or len(set(digits)) < len(DIGITS):
        emb, of = _sound(model, LogMel(figures), rng)
        sound.append(emb)
        digits += of
    return Bank(
        sound=torch.cat(sound),
        digits=[np.flatnonzero(np.array(digits) == digit) for digit in range(len(DIGITS))],
        tails=[_tails(model, figures, k + 1, rng) for k in range(TAIL_TOKENS)],
        pictures={size: _pictures(model, figures, size, shrink, rng) for size in PICTURE_TOKENS},
    )


def _sound(model: Any, log_mel: LogMel, rng: np.random.Generator) -> tuple[Tensor, list[int]]:
    scene = draw_scene(_AT_ONCE, rng)
    mels = [log_mel(second) for second in soundtrack(scene, rng).reshape(_AT_ONCE, AUDIO_HZ)]
    lengths = torch.tensor([mel.shape[1] for mel in mels])
    tower = model.thinker.model.audio_tower
    heard = tower(torch.cat(mels, dim=1), feature_lens=lengths).last_hidden_state
    return heard.view(_AT_ONCE, -1, heard.shape[-1]), list(scene.digits)


def _tails(model: Any, figures: MediaFigures, tokens: int, rng: np.random.Generator) -> Tensor:
    """Faint noise, and silence, of `tokens` tokens."""
    log_mel = LogMel(figures)
    levels = rng.uniform(0.0, 0.1, TAILS) * (rng.random(TAILS) < 0.5)
    noise = rng.standard_normal((TAILS, tokens * TOKEN_SAMPLES), dtype=np.float32)
    mels = [log_mel(level * wave) for level, wave in zip(levels.astype("f4"), noise, strict=True)]
    mels.append(
        mels[0].new_zeros(len(mels[0]), figures.mel_window)
    )  # pads the others, as in a clip
    lengths = torch.tensor([mel.shape[1] for mel in mels])
    tower = model.thinker.model.audio_tower
    heard = tower(torch.cat(mels, dim=1), feature_lens=lengths).last_hidden_state
    return heard[: TAILS * tokens].view(TAILS, tokens, -1)


def _pictures(
    model: Any, figures: MediaFigures, size: Size, shrink: int, rng: np.random.Generator
) -> Pictures:
    visual, emb, deep, content = model.thinker.model.visual, [], [], list[int]()
    contents = range(len(COLOURS) * len(SHAPES))
    seconds = min(PICTURE_SECONDS, PICTURE_TOKENS_EACH // PICTURE_TOKENS[size]) // shrink
    while len(content) < seconds or len(set(content)) < len(contents):
        scene = draw_scene(8, rng)
        frames = pictures(scene, size, rng).reshape(scene.seconds, FPS, *size, 3)
        flat, grids = zip(*(patches(pair, figures) for pair in frames), strict=True)
        seen = visual(torch.cat(flat), grid_thw=torch.tensor(grids))
        emb.append(seen.pooler_output.unflatten(0, (scene.seconds, -1)))
        deep.append(seen.deepstack_features[0].unflatten(0, (scene.seconds, -1)))
        content += [c * len(SHAPES) + s for c, s in zip(scene.colours, scene.shapes, strict=True)]
    places = [np.flatnonzero(np.array(content) == one) for one in contents]
    return Pictures(torch.cat(emb), torch.cat(deep), places)
