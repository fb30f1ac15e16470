"""Omniglot (Lake et al. 2015)."""

from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.data.sets.official import Archive, descend, official
from sumpool.errors import InputError
from sumpool.types import Preprocessing

_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
_PUBLISHED = {"train": (19280, 964), "test": (13180, 659)}


@official(
    "omniglot",
    folder="omniglot-py",
    published=_PUBLISHED,
    archives=(
        Archive("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718", _URL + "images_background.zip"),
        Archive("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811", _URL + "images_evaluation.zip"),
    ),
    preprocessing=Preprocessing(28, 28, mean=(0.5,), std=(0.5,), channels="gray"),
    other_packs={"omniglot28.npz": _PUBLISHED},
)
def omniglot(folder: Path) -> Dataset:
    """Omniglot: characters by 20 drawers; 30 background alphabets train, 20 evaluation alphabets test."""
    folder = descend(folder, "images_background")
    records: list[Record] = []
    names: list[str] = []
    for split, part in {"train": "images_background", "test": "images_evaluation"}.items():
        for character in sorted((folder / part).glob("*/character*")):
            records += [Record(path, len(names), split) for path in sorted(character.glob("*.png"))]
            names.append(f"{character.parent.name}/{character.name}")
    if not records:
        raise InputError(f"{folder} has no alphabet/character/*.png: unpack both official archives there")
    return Dataset("omniglot", records, names)
