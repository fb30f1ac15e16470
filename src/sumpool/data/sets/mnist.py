"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): the same file format."""

import gzip
from pathlib import Path

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Array, Record
from sumpool.data.sets.official import Archive, descend, official
from sumpool.errors import InputError
from sumpool.types import Preprocessing

PREPROCESSING = Preprocessing(28, 28, mean=(0.1307,), std=(0.3081,), channels="gray")
PUBLISHED = {"train": (60000, 10), "test": (10000, 10)}
_PREFIX = {"train": "train", "test": "t10k"}
_CLOTHES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle-boot"]


def _archives(url: str, md5: tuple[str, str, str, str]) -> tuple[Archive, ...]:
    files = [f"{prefix}-{kind}-ubyte.gz" for prefix in _PREFIX.values() for kind in ("images-idx3", "labels-idx1")]
    return tuple(Archive(file, checksum, url + file) for file, checksum in zip(files, md5, strict=True))


@official(
    "mnist",
    folder="MNIST",
    published=PUBLISHED,
    archives=_archives(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    preprocessing=PREPROCESSING,
)
def mnist(folder: Path) -> Dataset:
    """MNIST: 28-px scans of handwritten digits, the same classes in train and test."""
    return _read(folder, "mnist", [str(digit) for digit in range(10)])


@official(
    "fashion-mnist",
    folder="FashionMNIST",
    published=PUBLISHED,
    archives=_archives(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    preprocessing=PREPROCESSING,
)
def fashion_mnist(folder: Path) -> Dataset:
    """Fashion-MNIST: 28-px pictures of clothes, the same classes in train and test."""
    return _read(folder, "fashion-mnist", _CLOTHES)


def _read(folder: Path, name: str, classes: list[str]) -> Dataset:
    folder = descend(folder, "train-images-idx3-ubyte.gz")
    records = []
    for split, prefix in _PREFIX.items():
        images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
        if len(images) != len(labels) or labels.max() >= len(classes):
            raise InputError(
                f"{folder} has {len(images)} {split} images and {len(labels)} labels: the files do not fit"
            )
        titles = [f"{prefix} image {row}" for row in range(len(labels))]
        records += [
            Record(image, int(label), split, name=title)
            for image, label, title in zip(images, labels, titles, strict=True)
        ]
    return Dataset(name, records, classes)


def read_idx(path: Path) -> Array:
    """An idx file: two zero bytes, type 8 (uint8), the number of dimensions, each as big-endian uint32, the values."""
    if not path.is_file():
        raise InputError(f"{path} is missing: all four files of the set are needed")
    try:
        content = gzip.decompress(path.read_bytes())
        dimensions = content[3]
        shape = np.frombuffer(content, ">u4", dimensions, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape.tolist())
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a complete idx file ({error}): fetch it again") from error
