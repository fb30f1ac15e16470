"""Transforms against plain Pillow and NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool.data import CentreCrop, RandomResizedCrop, ShiftedCrop
from sumpool.data.transforms import random_box, to_tensor
from sumpool.errors import InputError
from sumpool.types import Preprocessing

FAIR = Preprocessing()
CAFFE = Preprocessing(std=(1.0, 1.0, 1.0), channels="bgr", scale=255.0)

Picture = Callable[..., Image.Image]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("wanted", [FAIR, CAFFE])
def test_normalisation_is_the_formula(wanted: Preprocessing, picture: Picture) -> None:
    image = picture(0)
    x = np.asarray(image, np.float64) / 255
    expected = wanted.scale * (x - np.array(wanted.mean)) / np.array(wanted.std)
    expected = expected[:, :, ::-1] if wanted.channels == "bgr" else expected
    np.testing.assert_allclose(to_tensor(image, wanted).numpy(), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-4)


def test_gray_normalisation(picture: Picture) -> None:
    image = picture(0).convert("L")
    result = to_tensor(image, Preprocessing(28, 28, (0.5,), (0.25,), "gray"))
    np.testing.assert_allclose(result.numpy()[0], (np.asarray(image) / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(640, 480), (300, 500), (256, 256), (120, 90)])
def test_centre_crop_shows_what_resize_then_crop_shows(size: tuple[int, int], picture: Picture) -> None:
    image = picture(1, size)
    scale = 256 / min(size)
    resized = image.resize((round(size[0] * scale), round(size[1] * scale)), Image.Resampling.BILINEAR)
    left, top = ((side - 227) / 2 for side in resized.size)
    two_steps = resized.crop((round(left), round(top), round(left) + 227, round(top) + 227))
    once = CentreCrop(FAIR).pixels(image, rng())
    assert once.size == (227, 227)
    assert np.abs(np.asarray(once, float) - np.asarray(two_steps, float)).mean() < 1


def test_an_image_of_the_right_size_passes_unchanged(picture: Picture) -> None:
    wanted = Preprocessing(32, 32, (0.0,) * 3, (1.0,) * 3, scale=255.0)
    image = picture(2, (32, 32))
    assert np.array_equal(CentreCrop(wanted)(image, rng()).numpy(), np.asarray(image).transpose(2, 0, 1))


def test_random_boxes_have_the_area_and_ratio_asked_for() -> None:
    areas, ratios, source = [], [], rng(1)
    for _ in range(4000):
        left, top, right, bottom = random_box(400, 300, (0.16, 0.5), (3 / 4, 4 / 3), source)
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        areas.append((right - left) * (bottom - top) / 120000)
        ratios.append((right - left) / (bottom - top))
    assert 0.16 <= min(areas) <= max(areas) <= 0.5
    assert np.mean(areas) == pytest.approx(0.33, abs=0.01)
    assert np.mean(np.log(ratios)) == pytest.approx(0, abs=0.01)
    assert 0.75 <= min(ratios) <= max(ratios) <= 4 / 3 + 1e-9


def test_a_very_long_image_gives_its_middle() -> None:
    assert random_box(1000, 10, (0.9, 1.0), (3 / 4, 4 / 3), rng()) == pytest.approx(
        (493.3333, 0, 506.6667, 10), abs=1e-3
    )


def test_the_fair_training_crop_draws_sides_between_40_and_256() -> None:
    transform = RandomResizedCrop(FAIR)
    sides = []
    for seed in range(3000):
        (left, top, right, bottom), _ = transform.choose(256, 256, rng(seed))
        sides.append(((right - left) * (bottom - top)) ** 0.5)
    assert 40 <= min(sides) < 60
    assert 250 < max(sides) <= 256


def test_training_crops_follow_their_generator_and_mirror_half_of_them(picture: Picture) -> None:
    transform = RandomResizedCrop(Preprocessing(16, 20))
    image = picture(3, (50, 40))
    assert torch.equal(transform(image, rng(5)), transform(image, rng(5)))
    assert not torch.equal(transform(image, rng(5)), transform(image, rng(6)))
    mirrored = [transform.choose(50, 40, rng(seed))[1] for seed in range(2000)]
    assert np.mean(mirrored) == pytest.approx(0.5, abs=0.04)


def test_a_box_is_cut_out_first() -> None:
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[10:40, 20:50] = 200
    wanted = Preprocessing(10, 10, (0.0,) * 3, (1.0,) * 3, scale=255.0)
    inside = CentreCrop(wanted)(Image.fromarray(pixels), rng(), (20, 10, 50, 40))
    assert torch.equal(inside[:, 1:-1, 1:-1], torch.full((3, 8, 8), 200.0))  # the filter of the rim reaches outside
    assert inside.min() > 100
    with pytest.raises(InputError, match="at least one pixel"):
        CentreCrop(wanted)(Image.fromarray(pixels), rng(), (20, 10, 20, 10))


def test_a_box_of_a_large_jpeg_is_decoded_finely_enough(tmp_path: object, picture: Picture) -> None:
    import io

    large = picture(4, (1600, 1200))
    buffer = io.BytesIO()
    large.save(buffer, "JPEG", quality=95)
    box = (800.0, 600.0, 864.0, 664.0)
    shown = CentreCrop(Preprocessing(64, 64)).pixels(Image.open(buffer), rng(), box)
    assert np.abs(np.asarray(shown, float) - np.asarray(large.crop((800, 600, 864, 664)), float)).mean() < 3


def test_shifted_crops_pad_with_black() -> None:
    wanted = Preprocessing(8, 8, (0.0,) * 3, (1.0,) * 3, scale=255.0)
    image = Image.fromarray(np.full((8, 8, 3), 99, np.uint8))
    counts = set()
    for seed in range(200):
        values = ShiftedCrop(wanted, pad=2)(image, rng(seed))
        assert set(values.unique().tolist()) <= {0.0, 99.0}
        counts.add(int((values[0] == 99).sum()))
    assert counts == {rows * columns for rows in (6, 7, 8) for columns in (6, 7, 8)}


@pytest.mark.parametrize("settings", [{"area": (0.0, 1.0)}, {"area": (0.5, 1.5)}, {"ratio": (2.0, 1.0)}, {"flip": 1.5}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match="expected 0 < area"):
        RandomResizedCrop(FAIR, **settings)  # type: ignore[arg-type]
