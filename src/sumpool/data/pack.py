"""Packs: a whole dataset in one `.npz`, as pixels or as encoded images.

Three layouts are read, all without pickle:

- `jpeg` (all encoded bytes, concatenated), `offsets` (N+1), `labels`, `class_names`; optional `file_names`, `splits`,
  `roles`, `boxes` (NaN where an image has none). This one is also written.
- `x_train`, `y_train`, `x_test`, `y_test` (pixels and labels), `fine_names`.
- `x`, `y`, `class_names`; optional `is_eval` (True: test).
"""

import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Array, Record
from sumpool.errors import InputError
from sumpool.types import Preprocessing


def read_pack(path: Path, name: str = "", preprocessing: Preprocessing | None = None) -> Dataset:
    """The dataset in a pack."""
    arrays = load_arrays(path)
    layouts = {"jpeg": _encoded, "x_train": _two_parts, "x": _one_part}
    for key, layout in layouts.items():
        if key in arrays:
            try:
                records, class_names = layout(arrays, path.name)
            except KeyError as missing:
                raise InputError(f"pack {path} has no array {missing}, which a pack with {key!r} needs") from None
            return Dataset(name or path.stem, records, class_names, preprocessing)
    raise InputError(f"pack {path} has none of the arrays {', '.join(layouts)}: got {', '.join(arrays) or 'nothing'}")


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a `.npz`; uncompressed ones are mapped, not read, so that processes share them."""
    if not path.is_file():
        raise InputError(f"pack {path} does not exist")
    try:
        with zipfile.ZipFile(path) as bundle, np.load(path, allow_pickle=False) as lazy:
            members = {info.filename.removesuffix(".npy"): info for info in bundle.infolist()}
            return {
                key: _mapped(path, info) if info.compress_type == zipfile.ZIP_STORED else lazy[key]
                for key, info in members.items()
            }
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise InputError(f"pack {path} cannot be read: {error}") from error


def _mapped(path: Path, info: zipfile.ZipInfo) -> Array:
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)  # the local header's two lengths, then the name and the extra field
        lengths = np.frombuffer(file.read(4), "<u2")
        file.seek(int(lengths.sum()), 1)
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if dtype.hasobject:
            raise ValueError("object arrays need pickle, which is refused")
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def _encoded(arrays: Mapping[str, Array], pack: str) -> tuple[list[Record], list[str]]:
    blob, offsets, labels = arrays["jpeg"], arrays["offsets"].astype(np.int64), arrays["labels"]
    if offsets.shape != (len(labels) + 1,) or np.any(np.diff(offsets) < 0) or offsets[-1] != len(blob):
        raise InputError(
            f"pack {pack} needs {len(labels) + 1} ascending offsets up to {len(blob)}, got {offsets.shape}"
        )
    images = [blob[start:stop] for start, stop in pairwise(offsets.tolist())]
    splits = arrays["splits"] if "splits" in arrays else halves(labels)
    return _records(images, labels, splits, arrays, pack), arrays["class_names"].tolist()


def _two_parts(arrays: Mapping[str, Array], pack: str) -> tuple[list[Record], list[str]]:
    images = [image for part in ("train", "test") for image in arrays[f"x_{part}"]]
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    splits = np.repeat(["train", "test"], [len(arrays["x_train"]), len(arrays["x_test"])])
    names = arrays["fine_names" if "fine_names" in arrays else "class_names"]
    return _records(images, labels, splits, {"class_names": names}, pack), names.tolist()


def _one_part(arrays: Mapping[str, Array], pack: str) -> tuple[list[Record], list[str]]:
    labels = arrays["y"]
    splits = np.where(arrays["is_eval"], "test", "train") if "is_eval" in arrays else halves(labels)
    return _records(list(arrays["x"]), labels, splits, arrays, pack), arrays["class_names"].tolist()


def _records(images: list[Array], labels: Array, splits: Array, arrays: Mapping[str, Array], pack: str) -> list[Record]:
    if not len(images) == len(labels) == len(splits):
        raise InputError(f"pack {pack} has {len(images)} images, {len(labels)} labels and {len(splits)} splits")
    known = len(arrays["class_names"])
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < known:
        raise InputError(f"pack {pack} has labels {labels.min()} to {labels.max()}, but {known} class names")
    names = arrays.get("file_names", np.arange(len(labels)).astype(str))
    roles = arrays.get("roles", np.full(len(labels), "both"))
    boxes = arrays.get("boxes", np.full((len(labels), 4), np.nan))
    columns = (images, labels.tolist(), splits.tolist(), roles.tolist(), boxes.tolist(), names.tolist())
    return [
        Record(image, label, split, role, None if np.isnan(box[0]) else tuple(box), f"{title} in {pack}")
        for image, label, split, role, box, title in zip(*columns, strict=True)
    ]


def halves(labels: Array) -> Array:
    """The usual split where none is given: the first half of the classes trains, the second half tests."""
    return np.where(labels < (int(labels.max(initial=0)) + 1) // 2, "train", "test")
