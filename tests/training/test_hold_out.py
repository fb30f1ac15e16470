"""Validation on held-out images of the training classes, for sets whose test classes are the same."""

import pytest
import torch

from sumpool.data import load_dataset
from sumpool.errors import InputError
from sumpool.training.config import TrainConfig
from sumpool.training.setup import split


def test_every_class_keeps_a_part_of_its_images_for_validation() -> None:
    digits = load_dataset("digits", shared=True)
    train, validation = split(digits, TrainConfig("digits", validate_on="images", folds=5, fold=4))
    assert train.classes == validation.classes == digits.split("test").classes
    assert len(train) + len(validation) == len(digits.split("train")) == 1200
    assert not {record.title for record in train.records} & {record.title for record in validation.records}
    counts = torch.bincount(digits.split("train").labels)
    torch.testing.assert_close(torch.bincount(validation.labels), counts // 5, rtol=0, atol=0)


def test_parts_are_disjoint_and_complete() -> None:
    train = load_dataset("digits").split("train")
    held = [record.title for part in range(3) for record in train.hold_out_images(3, part)[1].records]
    assert sorted(held) == sorted(record.title for record in train.records)
    with pytest.raises(InputError, match="fold must be between 0 and 2, got 3"):
        train.hold_out_images(3, 3)
