"""Packs: a whole dataset in one `.npz`, as pixels or as encoded images.

Three layouts are read, all without pickle:

- `jpeg` (all encoded bytes, concatenated), `offsets` (N+1), `labels`, `class_names`; optional `file_names`, `splits`,
  `roles`, `boxes` (NaN where an image has none). This one is also written.
- `x_train`, `y_train`, `x_test`, `y_test` (pixels and labels), `fine_names`.
- `x`, `y`, `class_names`; optional `is_eval` (True: test).
"""

import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import ROLES, SPLITS, Array, Record
from sumpool.errors import InputError
from sumpool.types import Preprocessing

_FORMS: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "jpeg": (np.uint8, (1,), "a row of uint8"),
    "is_eval": (np.bool_, (1,), "a row of True and False"),
    "boxes": (np.number, (2,), "rows of four numbers"),
    **dict.fromkeys(("x", "x_train", "x_test"), (np.uint8, (3, 4), "uint8 pixels N×H×W or N×H×W×3")),
    **dict.fromkeys(("offsets", "labels", "y", "y_train", "y_test"), (np.integer, (1,), "a row of whole numbers")),
    **dict.fromkeys(("class_names", "fine_names", "file_names"), (np.generic, (1,), "a row of names")),
    **dict.fromkeys(("splits", "roles"), (np.str_, (1,), "a row of words")),
}
"""Array → its type, how many dimensions it may have, and both in words."""


def read_pack(path: Path, name: str = "", preprocessing: Preprocessing | None = None) -> Dataset:
    """The dataset in a pack."""
    arrays = load_arrays(path)
    layouts = {"jpeg": _encoded, "x_train": _two_parts, "x": _one_part}
    for key, layout in layouts.items():
        if key in arrays:
            _require_forms(arrays, path)
            try:
                records, class_names = layout(arrays, path.name)
            except KeyError as missing:
                raise InputError(f"pack {path} has no array {missing}, which a pack with {key!r} needs") from None
            return Dataset(name or path.stem, records, [str(title) for title in class_names], preprocessing)
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
    except (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError, OSError) as error:
        raise InputError(f"pack {path} cannot be read: {error}") from error


def _require_forms(arrays: Mapping[str, Array], path: Path) -> None:
    for key, (kind, dimensions, form) in _FORMS.items():
        array = arrays.get(key)
        if array is not None and not (np.issubdtype(array.dtype, kind) and array.ndim in dimensions):
            raise InputError(f"pack {path} needs {form} as {key!r}, got {array.dtype} of shape {array.shape}")


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
    count, known = len(images), len(arrays["class_names"])
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < known:
        raise InputError(f"pack {pack} has labels {labels.min()} to {labels.max()}, but {known} class names")
    columns: dict[str, list[Any]] = {
        "labels": labels.tolist(),
        "splits": splits.tolist(),
        "roles": arrays.get("roles", np.full(count, "both")).tolist(),
        "boxes": arrays.get("boxes", np.full((count, 4), np.nan)).tolist(),
        "file_names": arrays.get("file_names", np.arange(count)).tolist(),
    }
    for name, column in columns.items():
        if len(column) != count:
            raise InputError(f"pack {pack} has {count} images, but {len(column)} {name}")
    for name, allowed in {"splits": SPLITS, "roles": ROLES}.items():
        if unknown := set(columns[name]).difference(allowed):
            raise InputError(f"pack {pack} has {min(unknown)!r} in {name}: expected {', '.join(allowed)}")
    if any(len(box) != 4 for box in columns["boxes"]):
        raise InputError(f"pack {pack} needs boxes of four numbers, got {len(columns['boxes'][0])}")
    return [
        Record(image, label, split, role, None if np.isnan(box[0]) else tuple(box), f"{title} in {pack}")
        for image, label, split, role, box, title in zip(images, *columns.values(), strict=True)
    ]


def halves(labels: Array) -> Array:
    """The usual split where none is given: the first half of the classes trains, the second half tests."""
    return np.where(labels < (int(labels.max(initial=0)) + 1) // 2, "train", "test")
