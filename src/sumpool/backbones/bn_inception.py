"""BN-Inception: the network of the papers this package reproduces.

Ioffe & Szegedy (2015), Batch Normalization, figure 5. Every convolution has a bias and is followed
by BatchNorm and ReLU.
"""

import re
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.backbones.base import Backbone
from sumpool.types import Preprocessing

# input, 1×1, 3×3 (reduced, out), double 3×3 (reduced, out), pool projection; a block that halves has no 1×1
BLOCKS = {
    "3a": (192, 64, (64, 64), (64, 96), 32),
    "3b": (256, 64, (64, 96), (64, 96), 64),
    "3c": (320, 0, (128, 160), (64, 96), 0),
    "4a": (576, 224, (64, 96), (96, 128), 128),
    "4b": (576, 192, (96, 128), (96, 128), 128),
    "4c": (576, 160, (128, 160), (128, 160), 128),
    "4d": (608, 96, (128, 192), (160, 192), 128),
    "4e": (608, 0, (128, 192), (192, 256), 0),
    "5a": (1056, 352, (192, 320), (160, 224), 128),
    "5b": (1024, 352, (192, 320), (192, 224), 128),
}


class BNInception(Backbone):
    """BN-Inception: 1024 channels at 1/32 of the image side, for 224- to 227-px BGR images on the 0..255 scale."""

    def __init__(self) -> None:
        stem = OrderedDict(
            conv1_7x7_s2=conv(3, 64, 7, stride=2),
            pool1=HalvingMaxPool(beyond=1),
            conv2_3x3_reduce=conv(64, 64, 1),
            conv2_3x3=conv(64, 192, 3),
            pool2=HalvingMaxPool(beyond=1),
        )
        stages: dict[str, nn.Module] = {"stem": nn.Sequential(stem)}
        for name, sizes in BLOCKS.items():
            # the last block pools by maximum, the others by average
            stages[f"inception_{name}"] = Inception(*sizes, max_pool=name == "5b")
        mean = (128 / 255, 117 / 255, 104 / 255)
        preprocessing = Preprocessing(size=227, mean=mean, std=(1.0, 1.0, 1.0), channels="bgr", scale=255.0)
        super().__init__(stages, out_features=1024, preprocessing=preprocessing)

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The public ImageNet file: flat names such as `inception_3a_3x3_reduce_bn.weight`, classifier `last_linear`.

        Some copies of it store BatchNorm's vectors as (1, C).
        """
        return {
            own_name(key): value.flatten() if "_bn." in key and value.dim() > 1 else value
            for key, value in weights.items()
            if not key.startswith(("last_linear.", "fc."))
        }


def own_name(key: str) -> str:
    """The name of an entry of the public file in this network.

    >>> own_name("conv1_7x7_s2.bias"), own_name("inception_3a_double_3x3_1_bn.weight")
    ('stages.stem.conv1_7x7_s2.conv.bias', 'stages.inception_3a.double_3x3_1.bn.weight')
    """
    layer, _, entry = key.rpartition(".")
    part = "bn" if layer.endswith("_bn") else "conv"
    layer = layer.removesuffix("_bn")
    inception = re.fullmatch(r"(inception_\d[a-e])_(.+)", layer)
    place = f"{inception[1]}.{inception[2]}" if inception else f"stem.{layer}"
    return f"stages.{place}.{part}.{entry}"


class Inception(nn.Module):
    """Four branches side by side, joined by channels: 1×1, 3×3, two 3×3, and a pooled copy."""

    def __init__(
        self, channels: int, single: int, three: tuple[int, int], double: tuple[int, int], pooled: int, max_pool: bool
    ) -> None:
        super().__init__()
        stride = 1 if single else 2
        self.branches = [["3x3_reduce", "3x3"], ["double_3x3_reduce", "double_3x3_1", "double_3x3_2"], ["pool"]]
        layers = {
            "3x3_reduce": conv(channels, three[0], 1),
            "3x3": conv(three[0], three[1], 3, stride),
            "double_3x3_reduce": conv(channels, double[0], 1),
            "double_3x3_1": conv(double[0], double[1], 3),
            "double_3x3_2": conv(double[1], double[1], 3, stride),
            "pool": HalvingMaxPool(beyond=2),
        }
        if single:
            layers["1x1"] = conv(channels, single, 1)
            layers["pool"] = nn.MaxPool2d(3, 1, padding=1) if max_pool else nn.AvgPool2d(3, 1, padding=1)
            layers["pool_proj"] = conv(channels, pooled, 1)
            self.branches = [["1x1"], *self.branches[:2], ["pool", "pool_proj"]]
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, features: Tensor) -> Tensor:
        """Join the branches."""
        return torch.cat([self.branch(names, features) for names in self.branches], dim=1)

    def branch(self, names: list[str], features: Tensor) -> Tensor:
        """The layers called `names`, one after the other."""
        for name in names:
            features = self.get_submodule(name)(features)
        return features


class HalvingMaxPool(nn.Module):
    """3×3 maximum at every second pixel of features that are not negative; windows reach `beyond` the far edge.

    1 is the rounding up (`ceil_mode`) of the original. Its inception blocks do that too, and fail at the sizes where
    their strided convolutions give one output more; 2 is the same where they agree and gives that output elsewhere.
    """

    def __init__(self, beyond: int) -> None:
        super().__init__()
        self.beyond = beyond

    def forward(self, features: Tensor) -> Tensor:
        """Pool; zeros never win."""
        return F.max_pool2d(F.pad(features, (0, self.beyond, 0, self.beyond)), 3, stride=2)


def conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU."""
    convolution = nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(OrderedDict(conv=convolution, bn=nn.BatchNorm2d(out), relu=nn.ReLU(inplace=True)))
