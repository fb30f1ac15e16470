"""Batches do not depend on workers; a run resumes where it stopped; bad images are named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumpool.data import (
    CentreCrop,
    ClassBalanced,
    Dataset,
    Draw,
    InOrder,
    Loader,
    RandomResizedCrop,
    in_memory,
    load_dataset,
)
from sumpool.errors import InputError
from sumpool.types import Batch, Preprocessing

TRANSFORM = RandomResizedCrop(Preprocessing(16, 20))


@pytest.fixture
def photos(tmp_path: Path, make_folder: Callable[[Path], Path]) -> Dataset:
    return load_dataset(str(make_folder(tmp_path / "photos"))).transformed(TRANSFORM, seed=7)


def loader(photos: Dataset, workers: int = 0) -> Loader:
    return Loader(photos, ClassBalanced(photos.labels, 2, 4, steps=3, seed=3), workers)


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_batches_do_not_depend_on_the_number_of_workers(photos: Dataset) -> None:
    runs = []
    for workers in (0, 1, 2):
        batches = loader(photos, workers)
        runs.append([batch for _ in range(2) for batch in batches])
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])
    assert runs[0][0].images.shape == (8, 3, 16, 16)


def test_a_crop_follows_seed_epoch_and_position(photos: Dataset) -> None:
    draws = [Draw(0, epoch, position) for epoch in (0, 1) for position in (0, 1)]
    crops = [photos.transformed(TRANSFORM, seed)[draw][0] for seed in (0, 1) for draw in draws]
    again = [photos.transformed(TRANSFORM, seed)[draw][0] for seed in (0, 1) for draw in draws]
    assert all(torch.equal(first, second) for first, second in zip(crops, again, strict=True))
    assert len({crop.numpy().tobytes() for crop in crops}) == 8


def test_repeated_images_are_augmented_differently(photos: Dataset) -> None:
    batches = loader(photos)
    first, second = next(iter(batches)), [*batches, *batches][3]
    crops = {image.numpy().tobytes() for batch in (first, second) for image in batch.images}
    assert len(crops) == 16  # 4 draws of a class with 3 images repeat an image, but not a crop


def test_batches_carry_labels_and_rows(photos: Dataset) -> None:
    for batch in loader(photos):
        assert torch.equal(photos.labels[batch.indices], batch.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_resumes_with_the_batches_it_would_have_seen(photos: Dataset, workers: int) -> None:
    whole = loader(photos, workers)
    expected = [batch for _ in range(2) for batch in whole]
    stopped = loader(photos, workers)
    seen = list(stopped)
    for batch in stopped:  # stops after the first batch of the second epoch, while workers are ahead
        seen.append(batch)
        state = stopped.state_dict()
        break
    assert state == {"epoch": 1, "batch": 1}
    resumed = loader(photos, workers)
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert same(seen, expected)
    assert resumed.state_dict() == {"epoch": 2, "batch": 0}


def test_leaves_the_global_random_state_alone(photos: Dataset) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(loader(photos))
    assert torch.equal(before, torch.get_rng_state())


@pytest.fixture
def damaged(photos: Dataset) -> Dataset:
    bad = photos.records[4].source
    assert isinstance(bad, Path)
    bad.write_bytes(b"broken")
    return photos


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_fatal_in_one_sentence(damaged: Dataset, workers: int) -> None:
    with pytest.raises(
        InputError, match=r"^image \S*bee/1\.jpg is not in a format that Pillow reads \(.* --bad-images skip\)$"
    ):
        list(Loader(damaged, InOrder(len(damaged), 4), workers))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_skipped_by_choice(damaged: Dataset, workers: int) -> None:
    batches = Loader(damaged, InOrder(len(damaged), 4), workers, bad="skip")
    with pytest.warns(UserWarning, match=r"skipped: image .*bee/1\.jpg"):
        rows = [row for batch in batches for row in batch.indices.tolist()]
    assert rows == [row for row in range(12) if row != 4]
    list(batches)  # the same image warns once


def test_a_batch_of_bad_images_is_left_out(damaged: Dataset) -> None:
    batches = Loader(damaged, InOrder(len(damaged), 1), bad="skip")
    with pytest.warns(UserWarning, match="skipped"):
        assert len(list(batches)) == 11


def test_memory_holds_the_same_pictures(photos: Dataset) -> None:
    decoded = in_memory(photos, side=20)
    assert [record.source.shape for record in decoded.records[:2]] == [(20, 27, 3)] * 2
    for (first, *_), (second, *_) in zip(photos, decoded, strict=False):
        assert (first - second).abs().mean() < 0.1
    assert torch.equal(decoded.labels, photos.labels)


def test_memory_scales_boxes(photos: Dataset) -> None:
    boxed = photos.with_records([photos.records[0]._replace(box=(3.0, 6.0, 30.0, 24.0))])
    assert in_memory(boxed, side=10).records[0].box == pytest.approx((1, 2, 10, 8))


def test_any_set_can_be_kept_in_memory(tmp_path: Path, make_folder: Callable[[Path], Path]) -> None:
    kept = load_dataset(str(make_folder(tmp_path / "photos")), in_memory=15, test_share=0.25)
    assert {record.source.shape for record in kept.records} == {(15, 20, 3)}
    assert kept.split("test").classes == ["dog"]


@pytest.mark.parametrize("side", [None, 56])
def test_any_set_can_be_cropped_to_its_boxes(side: int | None) -> None:
    size = {"per_class": 2, "classes": 5}
    whole = load_dataset("glyph-collage", **size).split("train")
    letters = load_dataset("glyph-collage", crop_boxes=True, in_memory=side, **size).split("train")
    crop = CentreCrop(Preprocessing(28, 28, (0.0,), (1.0,), "gray"))
    assert whole.transformed(crop).crop_boxes is False
    for row, (image, *_) in enumerate(letters.transformed(crop)[row] for row in range(len(letters))):
        left, top, right, bottom = whole.records[row].box
        expected = whole.records[row].source[top:bottom, left:right]
        assert torch.equal((image[0] * 255).round().byte(), torch.from_numpy(expected.copy()))
        assert np.array_equal(np.asarray(letters.image(row).convert("L")), expected)


def test_bad_settings_are_refused(photos: Dataset) -> None:
    with pytest.raises(InputError, match="bad raise or skip"):
        Loader(photos, InOrder(3), bad="ignore")  # type: ignore[arg-type]
