"""Letters and symbols as pixel masks, from the DejaVu fonts that ship with matplotlib."""

import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageFont

from sumpool.data.record import Array
from sumpool.errors import InputError

FAMILIES = ("Sans", "SansMono", "Serif")
STYLES = ("", "-Bold", "-Oblique", "-BoldOblique", "-Italic", "-BoldItalic")
ALPHABETS = ("LATIN", "GREEK", "CYRILLIC")
_RENDERED = 36  # font size of the masks: larger than any use, so that they are only ever shrunk
_ALIKE = 0.03  # mean squared difference of two masks, 0 to 1, below which people take them for the same character


@cache
def faces() -> tuple[Path, ...]:
    """The 12 faces: three families, each upright and slanted, regular and bold."""
    try:
        from matplotlib import get_data_path
    except ImportError:
        raise InputError("the glyphs are drawn with matplotlib's fonts: pip install 'sumpool[data]'") from None
    folder = Path(get_data_path()) / "fonts" / "ttf"
    paths = (folder / f"DejaVu{family}{style}.ttf" for family in FAMILIES for style in STYLES)
    return tuple(path for path in paths if path.is_file())


@cache
def mask(character: str, face: int) -> Image.Image:
    """How much ink each pixel of a character has, 0 to 255, cut to its extent."""
    drawn = _font(face).getmask(character)
    return Image.fromarray(np.array(drawn, np.uint8).reshape(drawn.size[1], drawn.size[0]))


@cache
def _font(face: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(faces()[face], _RENDERED)


@cache
def letters() -> tuple[str, ...]:
    """Letters of three alphabets that all faces have and that look different: A stands for Latin, Greek and Cyrillic A.

    Letters composed of a base and an accent are left out, since an accent is a pixel or two.
    """
    return _distinct([c for c in _shared() if _is_letter(c)])


@cache
def symbols() -> tuple[str, ...]:
    """Arrows, operators and shapes that all faces have, that look different from each other and from every letter."""
    marks = [c for c in _shared() if unicodedata.category(c) in ("Sm", "So") and mask(c, 0).getbbox()]
    return _distinct([*letters(), *marks])[len(letters()) :]


def _is_letter(character: str) -> bool:
    plain = unicodedata.category(character) in ("Lu", "Ll") and not unicodedata.decomposition(character)
    return plain and unicodedata.name(character).split()[0] in ALPHABETS


@cache
def _shared() -> tuple[str, ...]:
    from matplotlib.ft2font import FT2Font

    codes = set.intersection(*(set(FT2Font(str(path)).get_charmap()) for path in faces()))
    return tuple(chr(code) for code in sorted(codes))


def _distinct(characters: list[str]) -> tuple[str, ...]:
    """The characters without those that look like an earlier one, compared at one size in the three regular faces."""
    regular = [number for number, path in enumerate(faces()) if "-" not in path.stem]
    looks = np.stack([np.concatenate([_fitted(c, face) for face in regular]) for c in characters])
    power = (looks**2).mean(1)
    difference = power[:, None] + power - 2 * looks @ looks.T / looks.shape[1]
    kept: list[int] = []
    for row in range(len(characters)):
        if difference[row, kept].min(initial=1) >= _ALIKE:
            kept.append(row)
    return tuple(characters[row] for row in kept)


def _fitted(character: str, face: int, side: int = 16) -> Array:
    """The mask in the middle of a square, its longer side filling it, as a flat vector in 0 … 1."""
    ink = mask(character, face)
    scale = side / max(ink.size)
    small = ink.resize((max(round(ink.width * scale), 1), max(round(ink.height * scale), 1)), Image.Resampling.BOX)
    canvas = Image.new("L", (side, side))
    canvas.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return np.asarray(canvas, np.float32).ravel() / 255
