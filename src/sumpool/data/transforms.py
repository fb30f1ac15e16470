"""From an image to what a network reads.

Every transform picks a box of the upright image and one output size, and the pixels are resampled once, straight from
the decoded image. The protocols say "short side 256, then crop, then resize to 227": the same box in the same place,
without the blur and the time of resampling twice.
"""

import math

import numpy as np
import torch
from numpy.random import Generator
from PIL import Image
from torch import Tensor

from sumpool.data.image import decode, upright_size
from sumpool.data.record import Box
from sumpool.errors import InputError
from sumpool.types import Preprocessing

_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def random_box(width: int, height: int, area: tuple[float, float], ratio: tuple[float, float], rng: Generator) -> Box:
    """A box with uniform share of the area and log-uniform aspect ratio, anywhere it fits.

    When ten draws do not fit (a very long image), the largest central box of an allowed ratio.
    """
    for _ in range(10):
        pixels = width * height * rng.uniform(*area)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = math.sqrt(pixels * aspect), math.sqrt(pixels / aspect)
        if w <= width and h <= height:
            left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return left, top, left + w, top + h
    return central_box(width, height, min(width, height * ratio[1]), min(height, width / ratio[0]))


def central_box(width: float, height: float, w: float, h: float) -> Box:
    """A w×h box in the middle.

    >>> central_box(100, 60, 40, 40)
    (30.0, 10.0, 70.0, 50.0)
    """
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def resample(pixels: Image.Image, box: Box, size: int, method: Image.Resampling) -> Image.Image:
    """The box as size×size pixels; what lies outside the image is black."""
    left, top, right, bottom = box
    if left < 0 or top < 0 or right > pixels.width or bottom > pixels.height:
        pixels = pixels.crop((round(left), round(top), round(right), round(bottom)))
        box = (0, 0, pixels.width, pixels.height)
    if pixels.size == (size, size) and box == (0, 0, size, size):
        return pixels
    return pixels.resize((size, size), method, box, reducing_gap=3.0)


def to_tensor(pixels: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """An 8-bit image as (C,H,W) float32: scale · (x/255 − mean) / std, channels in the network's order."""
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std))
    planes = np.asarray(pixels).reshape(pixels.height, pixels.width, -1).transpose(2, 0, 1)
    values = planes.astype(np.float32, order="C")
    values *= preprocessing.scale / (255 * std)
    values -= preprocessing.scale * mean / std
    return torch.from_numpy(values[::-1].copy() if preprocessing.channels == "bgr" else values)


class Transform:
    """Box, resampling and normalisation; a subclass chooses the box."""

    def __init__(self, preprocessing: Preprocessing | None = None) -> None:
        self.preprocessing = preprocessing or Preprocessing()

    def choose(self, width: int, height: int, rng: Generator) -> tuple[Box, bool]:
        """The box inside a width×height image, and whether to mirror it."""
        raise NotImplementedError

    def __call__(self, image: Image.Image, rng: Generator, within: Box | None = None) -> Tensor:
        """The tensor of an undecoded image, or of the part `within` it."""
        return to_tensor(self.pixels(image, rng, within), self.preprocessing)

    def pixels(self, image: Image.Image, rng: Generator, within: Box | None = None) -> Image.Image:
        """The same before normalisation: what the network will see, for human eyes."""
        full_width, full_height = upright_size(image)
        x, y, right, bottom = within or (0, 0, full_width, full_height)
        width, height = round(right - x), round(bottom - y)
        if min(width, height) < 1:
            raise InputError(f"a box must have at least one pixel, got {within}")
        (left, top, right, bottom), mirror = self.choose(width, height, rng)
        mode = "L" if self.preprocessing.channels == "gray" else "RGB"
        decoded = decode(image, mode, self.preprocessing.resize / min(width, height))
        across, down = decoded.width / full_width, decoded.height / full_height
        box = ((x + left) * across, (y + top) * down, (x + right) * across, (y + bottom) * down)
        shown = resample(decoded, box, self.preprocessing.size, _RESAMPLING[self.preprocessing.interpolation])
        return shown.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirror else shown


class CentreCrop(Transform):
    """Test: short side to `resize`, the central `size`×`size`."""

    def choose(self, width: int, height: int, rng: Generator) -> tuple[Box, bool]:
        """The middle."""
        side = min(width, height) * self.preprocessing.size / self.preprocessing.resize
        return central_box(width, height, side, side), False


class RandomResizedCrop(Transform):
    """Training: a random box, mirrored half of the time.

    The fair protocol draws sides between 40 and 256 of a short side of 256, which is the default `area`; the code of
    several papers uses `area=(0.16, 1)`.
    """

    def __init__(
        self,
        preprocessing: Preprocessing | None = None,
        area: tuple[float, float] = ((40 / 256) ** 2, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
    ) -> None:
        super().__init__(preprocessing)
        if not 0 < area[0] <= area[1] <= 1 or not 0 < ratio[0] <= ratio[1] or not 0 <= flip <= 1:
            raise InputError(f"expected 0 < area ≤ 1, 0 < ratio, 0 ≤ flip ≤ 1, got {area}, {ratio} and {flip}")
        self.area, self.ratio, self.flip = area, ratio, flip

    def choose(self, width: int, height: int, rng: Generator) -> tuple[Box, bool]:
        """Anywhere."""
        return random_box(width, height, self.area, self.ratio, rng), rng.random() < self.flip


class ShiftedCrop(Transform):
    """Training on small images: shifted by up to `pad` pixels, black outside, mirrored with probability `flip`."""

    def __init__(self, preprocessing: Preprocessing | None = None, pad: int = 4, flip: float = 0.5) -> None:
        super().__init__(preprocessing)
        if pad < 0 or not 0 <= flip <= 1:
            raise InputError(f"expected pad ≥ 0 and 0 ≤ flip ≤ 1, got {pad} and {flip}")
        self.pad, self.flip = pad, flip

    def choose(self, width: int, height: int, rng: Generator) -> tuple[Box, bool]:
        """Near the middle."""
        left, top, right, bottom = central_box(width, height, min(width, height), min(width, height))
        x, y = rng.integers(-self.pad, self.pad + 1, 2)
        return (left + x, top + y, right + x, bottom + y), rng.random() < self.flip
