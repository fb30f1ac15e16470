"""The synthetic token corpus: sets of local features without a backbone.

There are 16 classes with 4 tokens each, and 4 background tokens shared by all. A sample is 50 token ids: a share
~ N(0.5, 0.1) of them drawn from the class's own tokens, the rest from the background. A model gives every id a
trainable vector; a good pooling learns to leave the background out. Splits share the classes, because the vectors of
unseen tokens would be untrained.
"""

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.data.seed import generator
from sumpool.errors import InputError

PER_CLASS = 4
BACKGROUND = 4


def tokens(classes: int = 16, per_class: int = 40, length: int = 50, seed: int = 0) -> Dataset:
    """Sets of 50 token ids, half of them of the class and half background; ids instead of pixels."""
    if min(classes, per_class, length) < 1:
        raise InputError(f"classes, per_class and length must be at least 1, got {classes}, {per_class} and {length}")
    rng = generator(seed)
    records = [
        Record(_sample(label, classes, length, rng), label, split, name=f"{split} sample {number} of class {label}")
        for split in ("train", "val", "test")
        for label in range(classes)
        for number in range(per_class)
    ]
    return Dataset("tokens", records, [f"class {label}" for label in range(classes)])


def _sample(label: int, classes: int, length: int, rng: np.random.Generator) -> np.ndarray:
    own = round(length * float(np.clip(rng.normal(0.5, 0.1), 0, 1)))
    ids = np.concatenate(
        [
            label * PER_CLASS + rng.integers(0, PER_CLASS, own),
            classes * PER_CLASS + rng.integers(0, BACKGROUND, length - own),
        ]
    )
    return rng.permutation(ids)
