"""ResNet-50: bottleneck residual network, torchvision's layout.

He, Zhang, Ren & Sun (2016), Deep Residual Learning for Image Recognition. As in torchvision the stride of a bottleneck
sits in its 3×3 convolution.
"""

from collections import OrderedDict

from torch import Tensor, nn

from sumpool.backbones.base import Backbone
from sumpool.types import Preprocessing


class ResNet50(Backbone):
    """ResNet-50: 2048 channels at 1/32 of the image side, for 224-px images; reads torchvision's weights files."""

    def __init__(self) -> None:
        stem = OrderedDict(
            conv1=nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            bn1=nn.BatchNorm2d(64),
            relu=nn.ReLU(inplace=True),
            maxpool=nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages = {
            "stem": nn.Sequential(stem),
            "layer1": bottlenecks(64, 64, count=3, stride=1),
            "layer2": bottlenecks(256, 128, count=4, stride=2),
            "layer3": bottlenecks(512, 256, count=6, stride=2),
            "layer4": bottlenecks(1024, 512, count=3, stride=2),
        }
        super().__init__(stages, out_features=2048, preprocessing=Preprocessing(size=224))

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """torchvision: `conv1`, `bn1`, `layer1.0.conv1` … and the classifier `fc`."""
        return {
            f"stages.{key}" if key.startswith("layer") else f"stages.stem.{key}": value
            for key, value in weights.items()
            if not key.startswith("fc.")
        }


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up to four times the width, plus a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, features: Tensor) -> Tensor:
        """Residual block."""
        shortcut = features if self.downsample is None else self.downsample(features)
        features = self.relu(self.bn1(self.conv1(features)))
        features = self.relu(self.bn2(self.conv2(features)))
        output: Tensor = self.relu(self.bn3(self.conv3(features)) + shortcut)
        return output


def bottlenecks(channels: int, width: int, count: int, stride: int) -> nn.Sequential:
    """A stage: the first block changes size and width, the others keep them."""
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(count - 1)))
