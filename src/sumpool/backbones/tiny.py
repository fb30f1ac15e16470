"""A network small enough for tests and examples."""

from itertools import pairwise

from torch import nn

from sumpool.backbones.base import Backbone
from sumpool.errors import InputError
from sumpool.types import Preprocessing


class Tiny(Backbone):
    """Three strided convolutions: `channels` channels at 1/8 of the image side, for tests and examples."""

    def __init__(self, channels: int = 32) -> None:
        if channels < 2:
            raise InputError(f"channels must be at least 2, got {channels}")
        sizes = [3, channels // 2, channels, channels]
        stages = {
            f"conv{i}": nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
            for i, (a, b) in enumerate(pairwise(sizes), 1)
        }
        super().__init__(stages, out_features=channels, preprocessing=Preprocessing(size=32, resize=32))
