"""Write a dataset as a pack of small JPEGs: an epoch then costs a fraction of the decoding time."""

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.image import naming, open_image, orientation, require_side, shrunk
from sumpool.data.progress import counted
from sumpool.data.record import Array, Record


class Small(NamedTuple):
    """A shrunk image."""

    data: bytes
    scale: float


def shrink(record: Record, side: int = 256, quality: int = 92) -> Small:
    """The image with short side at most `side`, upright, as JPEG; an upright JPEG that small is kept byte for byte."""
    with naming(record.title):
        if isinstance(record.source, Path):
            image = open_image(record.source)
            if image.format == "JPEG" and min(image.size) <= side and orientation(image) == 1:
                image.load()
                return Small(record.source.read_bytes(), 1.0)
        small, scale = shrunk(record.source, side)
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=quality)
        return Small(buffer.getvalue(), scale)


def write_pack(dataset: Dataset, path: Path, side: int = 256, quality: int = 92, workers: int | None = None) -> Path:
    """Shrink every image into a pack at `path`, which appears only when it is complete.

    The bytes go to a temporary file first: a set of a hundred thousand images need not fit into memory.
    """
    require_side(side)
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes, scales = [], []
    with tempfile.TemporaryFile(dir=path.parent) as blob:
        for small in counted(_shrunk(dataset, side, quality, workers), len(dataset), f"packing {dataset.name}"):
            blob.write(small.data)
            sizes.append(len(small.data))
            scales.append(small.scale)
        arrays = _columns(dataset, np.array(scales)) | {"offsets": np.concatenate([[0], np.cumsum(sizes)])}
        partial = path.with_name(path.name + ".part")
        with zipfile.ZipFile(partial, "w") as bundle:
            for name, array in arrays.items():
                with bundle.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            with bundle.open("jpeg.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "|u1", "fortran_order": False, "shape": (blob.tell(),)}
                )
                blob.seek(0)
                shutil.copyfileobj(blob, member, 1 << 20)
    partial.replace(path)
    return path


def _shrunk(dataset: Dataset, side: int, quality: int, workers: int | None) -> Iterator[Small]:
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:  # Pillow releases the interpreter lock
        for start in range(0, len(dataset), 1024):  # a bounded number of results waits to be written
            yield from pool.map(lambda record: shrink(record, side, quality), dataset.records[start : start + 1024])


def _columns(dataset: Dataset, scales: Array) -> dict[str, Array]:
    records = dataset.records
    boxes = np.array([record.box or (np.nan,) * 4 for record in records]) * scales[:, None]
    return {
        "labels": np.array([record.label for record in records]),
        "class_names": np.array(dataset.class_names),
        "file_names": np.array([record.title for record in records]),
        "splits": np.array([record.split for record in records]),
        "roles": np.array([record.role for record in records]),
        "boxes": boxes,
    }
