"""A network that learns within a minute on a CPU."""

from itertools import pairwise

from torch import nn

from sumpool.backbones.base import Backbone
from sumpool.errors import InputError
from sumpool.types import Preprocessing

STRIDES = (2, 2, 2, 1)


class Conv4(Backbone):
    """Four 3×3 convolutions: `channels` channels at 1/8 of the image side, each place seeing 31×31 pixels.

    For 28- to 64-px images: of a 56-px collage of four letters it gives a 7×7 grid, and a place sees about one letter.
    """

    def __init__(self, channels: int = 64) -> None:
        if channels < 4:
            raise InputError(f"channels must be at least 4, got {channels}")
        sizes = [3, channels // 4, channels // 2, channels, channels]
        stages = {
            f"conv{i}": nn.Sequential(
                nn.Conv2d(a, b, 3, stride, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)
            )
            for i, ((a, b), stride) in enumerate(zip(pairwise(sizes), STRIDES, strict=True), 1)
        }
        super().__init__(stages, channels, Preprocessing(size=64, resize=64, mean=(0.5,) * 3, std=(0.5,) * 3))
