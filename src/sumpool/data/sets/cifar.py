"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the binary archives: the Python ones are pickles."""

from pathlib import Path

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Array, Record
from sumpool.data.sets.official import Archive, descend, official
from sumpool.errors import InputError
from sumpool.types import Preprocessing

PREPROCESSING = Preprocessing(32, 32, mean=(0.507, 0.487, 0.441), std=(0.267, 0.256, 0.276))


def _archive(file: str, md5: str) -> tuple[Archive]:
    return (Archive(file, md5, f"https://www.cs.toronto.edu/~kriz/{file}"),)


@official(
    "cifar10",
    folder="cifar-10-batches-bin",
    published={"train": (50000, 10), "test": (10000, 10)},
    archives=_archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    preprocessing=PREPROCESSING,
    other_packs={"cifar10_subset.npz": {"train": (20000, 10), "test": (5000, 10)}},
)
def cifar10(folder: Path) -> Dataset:
    """CIFAR-10: 32-px photos of 10 classes, the same classes in train and test."""
    folder = descend(folder, "batches.meta.txt")
    files = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
    names = (folder / "batches.meta.txt").read_text().split()
    return Dataset("cifar10", _records(folder, files, label_bytes=1, classes=len(names)), names)


@official(
    "cifar100",
    folder="cifar-100-binary",
    published={"train": (50000, 100), "test": (10000, 100)},
    archives=_archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    preprocessing=PREPROCESSING,
)
def cifar100(folder: Path) -> Dataset:
    """CIFAR-100: 32-px photos of 100 classes, the same classes in train and test."""
    folder = descend(folder, "fine_label_names.txt")
    names = (folder / "fine_label_names.txt").read_text().split()
    files = {"train": ["train.bin"], "test": ["test.bin"]}
    return Dataset("cifar100", _records(folder, files, label_bytes=2, classes=len(names)), names)


def _records(folder: Path, files: dict[str, list[str]], label_bytes: int, classes: int) -> list[Record]:
    records = []
    for split, names in files.items():
        for name in names:
            labels, images = read_rows(folder / name, label_bytes)
            if labels.max() >= classes:
                raise InputError(
                    f"{folder / name} has label {labels.max()}, but there are {classes} classes: it is damaged"
                )
            records += [
                Record(image, int(label), split, name=f"{name} image {row}")
                for row, (image, label) in enumerate(zip(images, labels, strict=True))
            ]
    return records


def read_rows(path: Path, label_bytes: int) -> tuple[Array, Array]:
    """Fine labels (N,) and images (N,32,32,3): rows of label bytes (the last is the fine one) and 3×32×32 pixels."""
    if not path.is_file():
        raise InputError(f"{path} is missing: unpack the whole official archive")
    raw = np.fromfile(path, np.uint8)
    width = label_bytes + 3072
    if len(raw) == 0 or len(raw) % width:
        raise InputError(f"{path} has {len(raw)} bytes, not a multiple of {width}: it is cut off or another file")
    rows = raw.reshape(-1, width)
    return rows[:, label_bytes - 1], rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
