"""The toy map: 10×10 pixels with two 5×5 blocks, small enough to see every weight."""

from itertools import combinations

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Array, Record
from sumpool.data.seed import generator
from sumpool.errors import InputError
from sumpool.types import Preprocessing

COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 255, 0), "yellow": (255, 255, 0)}
SIDE, BLOCK = 10, 5


def toy(per_class: int = 16, seed: int = 0) -> Dataset:
    """10×10 pictures of two 5×5 blocks; the class is the pair of colours, red and blue first."""
    if per_class < 1:
        raise InputError(f"per_class must be at least 1, got {per_class}")
    rng = generator(seed)
    pairs = list(combinations(COLOURS, 2))
    splits = ("train", "train", "val", "val", "test", "test")
    records = [
        Record(_picture(pair, rng), label, splits[label], name=f"toy {'-'.join(pair)} {number}")
        for label, pair in enumerate(pairs)
        for number in range(per_class)
    ]
    preprocessing = Preprocessing(SIDE, SIDE, mean=(0.0,) * 3, std=(1.0,) * 3)
    return Dataset("toy", records, ["-".join(pair) for pair in pairs], preprocessing)


def _picture(pair: tuple[str, str], rng: np.random.Generator) -> Array:
    """The blocks side by side or one above the other, in either order, each at its own offset, on black."""
    canvas = np.zeros((SIDE, SIDE, 3), np.uint8)
    for half, name in enumerate(rng.permutation(pair)):
        offset = int(rng.integers(0, SIDE - BLOCK + 1))
        canvas[half * BLOCK : (half + 1) * BLOCK, offset : offset + BLOCK] = COLOURS[name]
    return canvas if rng.random() < 0.5 else canvas.transpose(1, 0, 2).copy()
