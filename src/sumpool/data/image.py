"""From a source to pixels: scaled decoding, upright, 8 bits, and an error that names the image."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from sumpool.data.record import Source
from sumpool.errors import InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
_ORIENTATION = 0x0112  # EXIF tag
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@contextmanager
def naming(title: str) -> Iterator[None]:
    """Turn whatever a decoder raises into one sentence with the image's name."""
    try:
        yield
    except InputError as problem:
        raise InputError(f"image {title} cannot be used: {problem}") from None
    except FileNotFoundError:
        raise InputError(f"image {title} does not exist") from None
    except UnidentifiedImageError:
        raise InputError(f"image {title} is not in a format that Pillow reads") from None
    # Decoders of damaged files raise nearly anything: OSError, SyntaxError, struct.error, zlib.error, ValueError …
    except Exception as error:
        raise InputError(f"image {title} cannot be decoded: {error}") from error


def open_image(source: Source) -> Image.Image:
    """The image of a source, its pixels not decoded yet where the format allows.

    A file is read at once, so that no handle stays open.
    """
    if isinstance(source, Path):
        return Image.open(io.BytesIO(source.read_bytes()))
    if isinstance(source, tuple):
        rows = [np.concatenate(source[start : start + 2], axis=1) for start in (0, 2)]
        return Image.fromarray(np.concatenate(rows, axis=0))
    if source.dtype != np.uint8:
        raise InputError(f"pixels must be uint8, got {source.dtype}: tokens are read without a transform")
    return Image.open(io.BytesIO(source.tobytes())) if source.ndim == 1 else Image.fromarray(source)


def orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 (upright) to 8."""
    return int(image.getexif().get(_ORIENTATION, 1))


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height after the EXIF rotation."""
    width, height = image.size
    return (height, width) if orientation(image) >= 5 else (width, height)


def decode(image: Image.Image, mode: str = "RGB", scale: float = 1.0) -> Image.Image:
    """Decode upright in `mode` ("RGB" or "L"), at least `scale` of the full size.

    A JPEG stores cosine coefficients of 8×8 blocks; decoding 4×4, 2×2 or 1×1 pixels of each block gives a half, a
    quarter or an eighth of the size for a fraction of the time, so a 2000-px photo shown to a network at 256 px is
    never decoded at 2000 px. Other formats ignore `scale`.
    """
    turn = _UPRIGHT.get(orientation(image))
    if scale < 1:
        wanted = (math.ceil(image.width * scale), math.ceil(image.height * scale))
        image.draft(mode if image.mode in ("RGB", "L") else image.mode, wanted)
    image = _to_mode(image, mode)
    return image if turn is None else image.transpose(turn)


def shrunk(source: Source, side: int) -> tuple[Image.Image, float]:
    """The upright image with short side at most `side`, gray or RGB, and its scale."""
    image = open_image(source)
    width, height = upright_size(image)
    scale = min(1.0, side / min(width, height))
    small = decode(image, "L" if image.mode == "L" else "RGB", scale)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return small if small.size == size else small.resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0), scale


def require_side(side: int) -> None:
    """Refuse a short side without pixels, before an image is blamed for it."""
    if side < 1:
        raise InputError(f"the short side of shrunk images must be at least 1 pixel, got {side}")


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    """8-bit `mode`; 16-bit pixels are scaled (Pillow would clip them), transparent ones shown on white."""
    if image.mode == "F":
        raise InputError("floating-point pixels have no defined range; store 8 or 16 bits")
    if image.mode.startswith("I"):
        image = Image.fromarray(np.round(np.clip(np.asarray(image), 0, 65535) / 257).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image.load()
    return image if image.mode == mode else image.convert(mode)
