"""Local features on disk, memory-mapped: written once, checked when opened, continued when interrupted.

An entry is a folder of the cache, named by a digest of everything its features depend on except the images' contents:

about.json     that description
features.bin   (images, views, …) float32 or float16
rows.bin       per image and view: the stamp of the image it was computed from (0 while missing), and a checksum
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from sumpool.data.record import Array, Source
from sumpool.errors import InputError
from sumpool.files import write_atomically

ABOUT, FEATURES, ROWS = "about.json", "features.bin", "rows.bin"
ROW = np.dtype([("stamp", "<u8"), ("checksum", "<u4")])


def stamp(source: Source) -> int:
    """A number that changes with the image: from size and time of a file, or the pixels themselves; 0 if unreadable."""
    digest = hashlib.blake2b(digest_size=8)
    if isinstance(source, Path):
        try:
            status = source.stat()
        except OSError:
            return 0
        digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    for part in (source,) if isinstance(source, np.ndarray) else source if isinstance(source, tuple) else ():
        digest.update(f"{part.shape} {part.dtype}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return int.from_bytes(digest.digest(), "little") | 1


class FeatureStore:
    """One entry of the cache.

    Args:
        cache: the folder of all entries.
        about: what the features depend on, as JSON holds it; decides the name of the entry.
        stamps: of every image, 0 for one that cannot be read.
        views: features of how many versions of every image.
        shape: of one version's features.
        dtype: "float32" or "float16".
    """

    def __init__(
        self, cache: Path, about: dict[str, Any], stamps: Sequence[int], views: int, shape: Sequence[int], dtype: str
    ) -> None:
        self.about = json.dumps(about | {"views": views, "shape": list(shape), "dtype": dtype}, indent=1)
        self.folder = cache / hashlib.sha256(self.about.encode()).hexdigest()[:20]
        self.stamps, self.dtype = np.array(stamps, np.uint64), np.dtype(dtype)
        self.rows_shape = len(stamps), views
        self.shape = (*self.rows_shape, *shape)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return int(np.prod(self.shape)) * self.dtype.itemsize + int(np.prod(self.rows_shape)) * ROW.itemsize

    def reserve(self) -> None:
        """Make the files in full size, so that a full disk shows now, and forget features that are damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sizes = {ROWS: int(np.prod(self.rows_shape)) * ROW.itemsize}
        sizes[FEATURES] = self.bytes - sizes[ROWS]
        if any(_size(self.folder / name) != size for name, size in sizes.items()):
            for name, size in sizes.items():
                allocate(self.folder / name, size)
        write_atomically(self.folder / ABOUT, self.about.encode())
        rows, features = self._rows(), self.features("r")
        for place in zip(*(rows["stamp"] != 0).nonzero(), strict=True):
            if crc32(features[place]) != rows["checksum"][place]:
                rows["stamp"][place] = 0

    def missing(self) -> Array:
        """(images, views) True where there are no features of the image as it is now."""
        return np.asarray((self._rows()["stamp"] != self.stamps[:, None]) | (self.stamps == 0)[:, None])

    def write(self, images: Array, view: int, features: Array) -> None:
        """Keep the features of one view of some images.

        The checksum is what survives a crash: whatever part of this reaches the disk, half-written features are found.
        """
        stored = np.ascontiguousarray(features, self.dtype)
        if not np.isfinite(stored).all():
            raise InputError(f"local features beyond the range of {self.dtype}: use cache_dtype float32")
        self.features("r+")[images, view] = stored
        rows = self._rows()
        rows["checksum"][images, view] = [crc32(row) for row in stored]
        rows["stamp"][images, view] = self.stamps[images]

    def features(self, mode: Any = "c") -> Array:
        """All features, read from the disk when they are looked at; by default changes to them stay in memory."""
        return np.asarray(np.memmap(self.folder / FEATURES, self.dtype, mode, shape=self.shape))

    def _rows(self) -> Array:
        return np.asarray(np.memmap(self.folder / ROWS, ROW, "r+", shape=self.rows_shape))


def allocate(path: Path, size: int) -> None:
    """A file of zeros that really occupies its place: writing to a map of a sparse file on a full disk is fatal."""
    try:
        with open(path, "wb") as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as reason:
        path.unlink(missing_ok=True)
        raise InputError(f"cannot reserve {size / 1e9:.2f} GB for {path}: {reason.strerror}") from reason


def make_room(cache: Path, stores: Sequence[FeatureStore], gigabytes: float) -> None:
    """Keep the cache within its bound: refuse entries that exceed it, remove others, the longest unused first."""
    sizes = {store.folder: store.bytes for store in stores}
    need = sum(sizes.values())
    if need > gigabytes * 1e9:
        advice = "raise cache_gb, or lower cache_views or use cache_dtype float16"
        raise InputError(f"the features take {need / 1e9:.3g} GB, more than cache_gb {gigabytes:g}: {advice}")
    others = sorted(cache.glob(f"*/{ABOUT}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in (path.parent for path in others if path.parent not in sizes):
        sizes[folder] = sum(_size(folder / name) for name in (FEATURES, ROWS))
        if sum(sizes.values()) > gigabytes * 1e9:
            del sizes[folder]
            _remove(folder)
    fresh = need - sum(_size(store.folder / name) for store in stores for name in (FEATURES, ROWS))
    free = shutil.disk_usage(cache).free
    if fresh > free:
        raise InputError(f"the features take {fresh / 1e9:.3g} GB more, the disk of {cache} has {free / 1e9:.3g} GB")


def _remove(folder: Path) -> None:
    """Our files and no others: the folder of the cache is the user's choice."""
    for name in (ABOUT, FEATURES, ROWS):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
