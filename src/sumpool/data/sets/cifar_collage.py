"""The CIFAR collage: does a pooling learn what to leave out?

CIFAR-100 has 20 super-classes of 5 sub-classes. Of every super-class 2 sub-classes are for training, 1 for validation,
2 for test. Four super-classes are background, drawn by the seed or given by their numbers. An image is a 2×2 collage of
one image of the other 16 and three background images of the same split: neither sub-classes nor background are shared
by the splits. The text can be read in two ways: what must be found again is the sub-class, or (`groups`) one of the 16
super-classes, by sub-classes that no training has seen.
"Distilled" is the same without the background: the upper bound for a pooling that leaves it out.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.random import Generator

from sumpool.data.balanced import rows_of_classes
from sumpool.data.dataset import Dataset
from sumpool.data.pack import load_arrays
from sumpool.data.record import Array, Record
from sumpool.data.root import data_root
from sumpool.data.seed import generator
from sumpool.data.sets.cifar import PREPROCESSING, cifar100
from sumpool.data.sets.official import descend
from sumpool.errors import InputError
from sumpool.types import Preprocessing

SPLIT_OF_SUBCLASS = ("train", "train", "val", "test", "test")
BACKGROUND_GROUPS = 4


def cifar_collage(
    root: str | Path | None = None,
    per_class: int = 600,
    distilled: bool = False,
    groups: bool = False,
    background: Sequence[int] = (),
    seed: int = 0,
    verify: bool = True,
) -> Dataset:
    """64-px collages of CIFAR-100: one class image and three background images; both disjoint between splits."""
    if not 1 <= per_class <= 600:
        raise InputError(f"per_class must be between 1 and 600, got {per_class}")
    photos = cifar100(root, verify)
    rng = generator(seed)
    group = coarse_labels(data_root(root), photos.class_names)
    split_of, hidden = division(group, rng, background)
    rows = rows_of_classes(photos.labels)
    records: list[Record] = []
    for label in (label for label in range(len(split_of)) if label not in hidden):
        pool = np.concatenate([rows[other] for other in hidden if split_of[other] == split_of[label]])
        for row in rng.permutation(rows[label])[:per_class].tolist():
            others = rng.choice(pool, 3, replace=False).tolist()
            scene = rng.permutation([row, *others]).tolist()
            source = _pixels(photos, row) if distilled else tuple(_pixels(photos, tile) for tile in scene)
            wanted = int(group[label]) if groups else label
            records.append(Record(source, wanted, split_of[label], name=f"collage of {photos.records[row].title}"))
    side = 32 if distilled else 64
    preprocessing = Preprocessing(side, side, PREPROCESSING.mean, PREPROCESSING.std)
    names = photos.class_names
    if groups:
        names = [group_name(names, group == number) for number in range(group.max() + 1)]
    return Dataset("cifar-collage", records, names, preprocessing)


def division(group: Array, rng: Generator, background: Sequence[int] = ()) -> tuple[list[str], set[int]]:
    """The split of every sub-class, and the sub-classes that are background; `group` gives their super-classes."""
    unknown = set(background) - set(np.unique(group).tolist())
    if unknown:
        raise InputError(f"background holds numbers of super-classes, 0 to {group.max()}, got {sorted(unknown)}")
    split_of = [""] * len(group)
    for number in np.unique(group):
        members = rng.permutation(np.flatnonzero(group == number)).tolist()
        for member, split in zip(members, SPLIT_OF_SUBCLASS, strict=True):
            split_of[member] = split
    chosen = list(background) or rng.permutation(np.unique(group))[:BACKGROUND_GROUPS]
    return split_of, set(np.flatnonzero(np.isin(group, chosen)).tolist())


def group_name(fine_names: list[str], members: Array) -> str:
    """A super-class by its sub-classes: the archives do not all have its name."""
    return ", ".join(fine_names[label] for label in np.flatnonzero(members))


def coarse_labels(root: Path, fine_names: list[str]) -> Array:
    """(100,) super-class of every sub-class, from the pack or from the two label bytes of the binary archive."""
    place, _ = cifar100.find(root)
    if place.suffix == ".npz":
        arrays = load_arrays(place)
        if "fine_to_coarse" not in arrays:
            raise InputError(f"pack {place} has no array 'fine_to_coarse', which the collage needs")
        return arrays["fine_to_coarse"]
    rows = np.fromfile(descend(place, "train.bin") / "train.bin", np.uint8).reshape(-1, 3074)
    group = np.zeros(len(fine_names), np.int64)
    group[rows[:, 1]] = rows[:, 0]
    return group


def _pixels(photos: Dataset, row: int) -> Array:
    pixels = photos.records[row].source
    assert isinstance(pixels, np.ndarray)
    return pixels
