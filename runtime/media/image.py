"""A client's still picture, with a guard against pictures that unpack to gigabytes."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from runtime.media.fidelity import Fidelity
from runtime.media.limits import Guard, MediaError, MediaProblem

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def decode_image(data: bytes, guard: Guard, fidelity: Fidelity) -> tuple[NDArray[np.uint8], str]:
    """RGB pixels `(height, width, 3)` and the format's name; of an animation the first frame.

    Raises `MediaError` when it is no picture, or larger than is taken (told from its header).
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            guard.pixels(*picture.size)
            upright = _rgb(ImageOps.exif_transpose(picture))
            name = str(picture.format).lower()
        size = fidelity.size(*upright.size)
        scaled = upright if size == upright.size else upright.resize(size, Image.Resampling.BOX)
    except MediaError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as err:
        raise guard.refusal(MediaProblem.TOO_MANY_PIXELS, f"is far too large: {err}") from err
    except Exception as err:  # a parser of hostile bytes may raise anything
        raise guard.refusal(
            MediaProblem.NOT_MEDIA, f"cannot be read as a picture ({', '.join(FORMATS)})"
        ) from err
    return np.asarray(scaled), name


def _rgb(picture: Image.Image) -> Image.Image:
    """The picture without transparency, on white as pages show it, and in 8 bits."""
    if picture.mode.startswith("I"):  # Pillow would cut 16 bits of grey off at 255
        grey = np.asarray(picture).astype(np.int64) >> 8
        picture = Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    seen = picture.convert("RGBA")
    white = Image.new("RGBA", seen.size, "white")
    return Image.alpha_composite(white, seen).convert("RGB")
