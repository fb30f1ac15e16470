"""Images, labels and batches: the benchmark sets, one's own images, and sets that need no download."""

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from sumpool.data.balanced import ClassBalanced, EachClass
from sumpool.data.checks import remarks
from sumpool.data.dataset import Dataset
from sumpool.data.folds import fold_ranges
from sumpool.data.loader import Loader
from sumpool.data.memory import in_memory
from sumpool.data.pack import read_pack
from sumpool.data.record import Record
from sumpool.data.samplers import Draw, InOrder, Shuffled
from sumpool.data.sets.aircraft import aircraft
from sumpool.data.sets.cars import cars
from sumpool.data.sets.cifar import cifar10, cifar100
from sumpool.data.sets.cifar_collage import cifar_collage
from sumpool.data.sets.cub import cub
from sumpool.data.sets.digits import digits
from sumpool.data.sets.folder import folder
from sumpool.data.sets.glyphs import glyph_collage, glyphs
from sumpool.data.sets.inshop import inshop
from sumpool.data.sets.manifest import manifest
from sumpool.data.sets.mnist import fashion_mnist, mnist
from sumpool.data.sets.omniglot import omniglot
from sumpool.data.sets.packs import pack
from sumpool.data.sets.sop import sop
from sumpool.data.sets.tokens import tokens
from sumpool.data.sets.toy import toy
from sumpool.data.shrink import write_pack
from sumpool.data.transforms import CentreCrop, RandomResizedCrop, ShiftedCrop
from sumpool.errors import InputError
from sumpool.registry import check_type, create, lookup

__all__ = [
    "DATASETS",
    "CentreCrop",
    "ClassBalanced",
    "Dataset",
    "Draw",
    "EachClass",
    "InOrder",
    "Loader",
    "RandomResizedCrop",
    "Record",
    "ShiftedCrop",
    "Shuffled",
    "fold_ranges",
    "in_memory",
    "load_dataset",
    "read_pack",
    "remarks",
    "write_pack",
]

DATASETS: dict[str, Callable[..., Dataset]] = {
    "cub": cub,
    "cars": cars,
    "sop": sop,
    "inshop": inshop,
    "aircraft": aircraft,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "omniglot": omniglot,
    "cifar-collage": cifar_collage,
    "folder": folder,
    "manifest": manifest,
    "pack": pack,
    "tokens": tokens,
    "toy": toy,
    "glyphs": glyphs,
    "glyph-collage": glyph_collage,
    "digits": digits,
}


def load_dataset(
    name: str,
    root: str | Path | None = None,
    *,
    crop_boxes: bool = False,
    in_memory: int | None = None,
    **settings: Any,
) -> Dataset:
    """A dataset by name, or one's own by path: a folder of classes, a `.csv` or `.parquet` manifest, an `.npz` pack.

    Args:
        name: a key of `DATASETS`, or a path.
        root: the data folder for published sets (default: SUMPOOL_DATA); ignored by sets that need no files.
        crop_boxes: cut each image to its box before anything else is done to it.
        in_memory: short side in pixels, such as 256, to which every image is decoded once and then kept in memory; by
            default images are read when they are needed.
        settings: keyword arguments of the set, such as `per_class`.

    >>> load_dataset("toy", per_class=2).split("train")
    Dataset('toy', 4 images, 2 classes)
    """
    check_type("crop_boxes", crop_boxes, bool)
    check_type("in_memory", in_memory, int | None)
    return _served(_opened(name, root, settings), crop_boxes, in_memory)


def _served(dataset: Dataset, crop_boxes: bool, side: int | None) -> Dataset:
    if crop_boxes:
        dataset = dataset.cropped()
    return dataset if side is None else in_memory(dataset, side)


def _opened(name: str, root: str | Path | None, settings: dict[str, Any]) -> Dataset:
    path = Path(name)
    if name not in DATASETS and path.exists():
        kind = {".csv": "manifest", ".parquet": "manifest", ".npz": "pack"}.get(path.suffix, "folder")
        return create("dataset", DATASETS, kind, root=path, **settings)
    parameter = signature(lookup("dataset", DATASETS, name)).parameters.get("root")
    if parameter is not None and root is not None:
        settings = {"root": root, **settings}
    elif parameter is not None and parameter.default is Parameter.empty:
        raise InputError(f"dataset {name!r} needs a path: write the path itself in place of the name")
    return create("dataset", DATASETS, name, **settings)
