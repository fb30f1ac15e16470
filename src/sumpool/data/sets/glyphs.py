"""Letters drawn by fonts: real shapes, hundreds of classes, no download.

`glyphs` is one letter per image. `glyph-collage` puts a letter and three symbols into a 2×2 collage: the letter is the
class, the symbols are a background that all classes share, which a pooling should learn to leave out. Letters and
symbols are divided 2 : 1 : 2 into training, validation and test, so that test classes *and* their background are new.
"""

import math

import numpy as np
from numpy.random import Generator
from PIL import Image

from sumpool.data.dataset import Dataset
from sumpool.data.record import Array, Box, Record
from sumpool.data.seed import generator
from sumpool.data.sets.fonts import faces, letters, mask, symbols
from sumpool.errors import InputError
from sumpool.types import Preprocessing

TILE = 28
SHARES = {"train": 2, "val": 1, "test": 2}


def glyphs(per_class: int = 20, classes: int | None = None, seed: int = 0, background: bool = False) -> Dataset:
    """28-px letters of three alphabets in 12 fonts, turned, scaled, shifted, noisy; classes disjoint between splits.

    The splits have the letters of the collage's with the same `classes` and `seed`; `background` adds its symbols.
    """
    return _made("glyphs", per_class, classes, seed, collage=False, background=background)


def glyph_collage(per_class: int = 20, classes: int | None = None, seed: int = 0) -> Dataset:
    """56-px collages of one letter (the class) and three background symbols; both disjoint between splits.

    The box of a record is the quarter that shows the letter.
    """
    return _made("glyph-collage", per_class, classes, seed, collage=True)


def _made(
    name: str, per_class: int, classes: int | None, seed: int, collage: bool, background: bool = False
) -> Dataset:
    known = len(letters())
    if per_class < 1 or not 5 <= (classes or known) <= known:
        raise InputError(
            f"per_class must be at least 1 and classes between 5 and {known}, got {per_class} and {classes}"
        )
    rng = generator(seed)
    parts = divided(rng.permutation(letters())[:classes])
    backgrounds = divided(rng.permutation(symbols()))
    if background:
        parts = {split: np.concatenate([names, backgrounds[split]]) for split, names in parts.items()}
    records: list[Record] = []
    for split, names in parts.items():
        wanted = np.repeat(names, per_class)
        boxes: list[Box | None] = [None] * len(wanted)
        if collage:
            images, quarters = collages(wanted, backgrounds[split], rng)
            boxes = [quarter_box(quarter) for quarter in quarters.tolist()]
        else:
            images = noisy(tiles(wanted, rng), rng)
        for image, letter, box in zip(images, wanted.tolist(), boxes, strict=True):
            row = len(records)
            records.append(Record(image, row // per_class, split, box=box, name=f"{name} {row} of {letter}"))
    class_names = np.concatenate(list(parts.values())).tolist()
    side = 2 * TILE if collage else TILE
    return Dataset(name, records, class_names, Preprocessing(side, side, (0.5,), (0.5,), "gray"))


def divided(items: Array) -> dict[str, Array]:
    """The items cut 2 : 1 : 2 into training, validation and test."""
    edges = np.cumsum([len(items) * share // sum(SHARES.values()) for share in SHARES.values()])[:-1]
    return dict(zip(SHARES, np.split(items, edges), strict=True))


def collages(wanted: Array, background: Array, rng: Generator) -> tuple[Array, Array]:
    """(N,56,56) collages, different background symbols around each wanted letter, and (N,) the quarter it is in."""
    count = len(wanted)
    cells = np.argsort(rng.random((count, len(background))), axis=1)[:, :4]
    characters = background[cells]
    places = rng.integers(0, 4, count)
    characters[np.arange(count), places] = wanted
    quarters = tiles(characters.ravel(), rng).reshape(count, 2, 2, TILE, TILE)
    return noisy(quarters.transpose(0, 1, 3, 2, 4).reshape(count, 2 * TILE, 2 * TILE), rng), places


def quarter_box(quarter: int) -> Box:
    """Where a quarter of a collage lies, counted along the rows.

    >>> quarter_box(1)
    (28, 0, 56, 28)
    """
    top, left = divmod(quarter, 2)
    return left * TILE, top * TILE, (left + 1) * TILE, (top + 1) * TILE


def tiles(characters: Array, rng: Generator) -> Array:
    """(T,28,28) ink of each character in a random face: turned by ±15°, scaled by a fifth, shifted by ±3 pixels."""
    count = len(characters)
    face = rng.integers(0, len(faces()), count)
    angle = np.radians(rng.uniform(-15, 15, count))
    size = rng.uniform(16, 22, count)
    centre = TILE / 2 + rng.uniform(-3, 3, (count, 2))
    drawn = np.empty((count, TILE, TILE), np.uint8)
    for row, character in enumerate(characters.tolist()):
        drawn[row] = np.asarray(_placed(mask(character, int(face[row])), angle[row], size[row], *centre[row]))
    return drawn


def _placed(ink: Image.Image, angle: float, size: float, x: float, y: float) -> Image.Image:
    """The mask on a tile: its longer side `size` pixels, turned about its middle, which comes to (x, y)."""
    width, height = ink.size
    step = max(height, width) / size
    cos, sin = step * math.cos(angle), step * math.sin(angle)
    affine = (cos, sin, width / 2 - cos * x - sin * y, -sin, cos, height / 2 + sin * x - cos * y)
    return ink.transform((TILE, TILE), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)


def noisy(ink: Array, rng: Generator) -> Array:
    """Ink as gray values: paper and ink of random brightness per image, and Gaussian noise per pixel."""
    count = len(ink)
    paper = rng.uniform(0, 60, (count, 1, 1)).astype(np.float32)
    strength = rng.uniform(0.55, 0.75, (count, 1, 1)).astype(np.float32)
    noise = rng.standard_normal(ink.shape, np.float32) * 12
    return np.clip(paper + ink * strength + noise, 0, 255).astype(np.uint8)
