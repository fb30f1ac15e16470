"""The published sets themselves, where the user has them."""

import os
from pathlib import Path

import pytest

from sumpool.data import DATASETS, CentreCrop
from sumpool.data.checks import counts

ROOT = os.environ.get("SUMPOOL_DATA")
FILES = {"cifar100": "cifar100.npz", "cifar10": "cifar10_subset.npz", "omniglot": "omniglot28.npz"}


@pytest.fixture(params=list(FILES))
def name(request: pytest.FixtureRequest) -> str:
    chosen = str(request.param)
    if not ROOT:
        pytest.skip("SUMPOOL_DATA is not set")
    if not (Path(ROOT) / FILES[chosen]).is_file():
        pytest.skip(f"SUMPOOL_DATA has no {FILES[chosen]}")
    return chosen


def test_reads_with_the_published_counts(name: str) -> None:
    dataset = DATASETS[name]()
    assert dataset.preprocessing is not None
    image, label, row = dataset.transformed(CentreCrop(dataset.preprocessing))[len(dataset) - 1]
    assert image.shape[1:] == (dataset.preprocessing.size,) * 2
    assert (label, row) == (int(dataset.labels[-1]), len(dataset) - 1)


def test_cifar_collage_of_the_real_photos() -> None:
    if not ROOT or not (Path(ROOT) / "cifar100.npz").is_file():
        pytest.skip("SUMPOOL_DATA has no cifar100.npz")
    assert counts(DATASETS["cifar-collage"]()) == {"train": (19200, 32), "val": (9600, 16), "test": (19200, 32)}
