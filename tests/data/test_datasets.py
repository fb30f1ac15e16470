"""The promises of a dataset, run over every member of the table."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumpool.data import DATASETS, CentreCrop, Dataset
from sumpool.data.checks import counts, require_counts, shared_classes
from sumpool.errors import InputError
from sumpool.types import Preprocessing

Load = Callable[[str], Dataset]
SHARE_CLASSES = {"cifar10", "cifar100", "mnist", "fashion-mnist", "tokens"}
FILES = {"cub", "cars", "sop", "inshop", "aircraft", "omniglot", "folder", "manifest"}
every_set = pytest.mark.parametrize("name", list(DATASETS))


@every_set
def test_order_and_content_are_stable(load: Load, name: str) -> None:
    first, second = load(name), load(name)
    assert [record[1:] for record in first.records] == [record[1:] for record in second.records]
    for row in (0, len(first) // 2, len(first) - 1):
        assert torch.equal(first[row][0], second[row][0])


@every_set
def test_splits_are_class_disjoint(load: Load, name: str) -> None:
    assert bool(shared_classes(load(name))) == (name in SHARE_CLASSES)


@every_set
def test_labels_of_every_part_are_contiguous(load: Load, name: str) -> None:
    dataset = load(name)
    assert {"train", "test"} <= {record.split for record in dataset.records}
    for split in sorted({record.split for record in dataset.records}):
        part = dataset.split(split)
        assert torch.equal(part.labels.unique(), torch.arange(len(part.classes)))
        for label, record in zip(part.labels, part.records, strict=True):
            assert part.classes[label] == dataset.class_names[record.label]


@every_set
def test_samples_become_tensors(load: Load, name: str) -> None:
    dataset = load(name)
    if name == "tokens":
        assert dataset[0][0].shape == (50,)
        assert dataset[0][0].dtype == torch.int64
        return
    own = dataset.preprocessing or Preprocessing(size=16, resize=20)
    image, label, row = dataset.transformed(CentreCrop(own))[len(dataset) - 1]
    assert image.shape == (len(own.mean), own.size, own.size)
    assert image.dtype == torch.float32
    assert (label, row) == (int(dataset.labels[-1]), len(dataset) - 1)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_broken_file_names_itself(load: Load, name: str, tmp_path: Path) -> None:
    dataset = load(name)
    broken = tmp_path / "broken.jpg"
    source = dataset.records[0].source
    assert isinstance(source, Path)
    broken.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"broken\.jpg cannot be decoded"):
        dataset.with_records([dataset.records[0]._replace(source=broken)])[0]


@pytest.mark.parametrize("name", ["tokens", "toy", "glyphs", "glyph-collage"])
def test_generated_sets_follow_their_seed(name: str) -> None:
    small = {"classes": 10} if "glyph" in name else {}
    same, again, other = (DATASETS[name](per_class=2, seed=seed, **small) for seed in (3, 3, 4))
    pixels = [np.stack([record.source for record in d.records]) for d in (same, again, other)]
    assert np.array_equal(pixels[0], pixels[1])
    assert not np.array_equal(pixels[0], pixels[2])


def test_a_wrong_count_says_which(load: Load) -> None:
    dataset = load("cub")
    found = counts(dataset)
    assert found == {"train": (6, 2), "test": (6, 2)}
    require_counts(dataset, found)
    with pytest.raises(InputError, match="test has 6 images of 2 classes, published 7 of 2"):
        require_counts(dataset, {**found, "test": (7, 2)})
    with pytest.raises(InputError, match="val has 0 images of 0 classes, published 1 of 1"):
        require_counts(dataset, {**found, "val": (1, 1)})


def test_an_unknown_split_is_answered_with_the_known_ones(load: Load) -> None:
    with pytest.raises(InputError, match="unknown split of cub 'val'"):
        load("cub").split("val")


def test_folds_hold_out_contiguous_classes(load: Load) -> None:
    train = load("glyphs").split("train")
    held: list[str] = []
    for part in range(4):
        kept, out = train.hold_out(4, part)
        assert not set(kept.classes) & set(out.classes)
        assert len(kept) + len(out) == len(train)
        held += out.classes
    assert held == train.classes


def test_a_part_without_images_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match="has no images here"):
        load("toy").with_records([])
