"""ResNet-20 for small images, in the original and the pre-activation form.

He et al. (2016), Deep Residual Learning, section 4.2, and Identity Mappings in Deep Residual Networks: three stages of
three basic blocks with 16, 32, 64 channels; shortcuts without parameters (strided, padded with zero channels).
"""

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.backbones.base import Backbone
from sumpool.types import Preprocessing

CIFAR = Preprocessing(size=32, resize=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


class ResNet20(Backbone):
    """ResNet-20: 64 channels at 1/4 of the image side, for 32- to 64-px images."""

    def __init__(self) -> None:
        stem = OrderedDict(conv=conv(3, 16), bn=nn.BatchNorm2d(16), relu=nn.ReLU(inplace=True))
        super().__init__({"stem": nn.Sequential(stem), **layers(Basic)}, out_features=64, preprocessing=CIFAR)


class ResNetV2_20(Backbone):  # noqa: N801 (the network's own name)
    """Pre-activation ResNet-20: 64 channels at 1/4 of the image side, for 32- to 64-px images."""

    def __init__(self) -> None:
        last = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        super().__init__({"stem": conv(3, 16), **layers(PreActivation), "last": last}, 64, CIFAR)


class Basic(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(channels, out, stride), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = conv(out, out), nn.BatchNorm2d(out)

    def forward(self, features: Tensor) -> Tensor:
        """Residual block."""
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(features)))))
        return F.relu(shortcut(features, residual) + residual)


class PreActivation(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x))))))."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(channels), conv(channels, out, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(out), conv(out, out)

    def forward(self, features: Tensor) -> Tensor:
        """Residual block."""
        residual: Tensor = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(features))))))
        return shortcut(features, residual) + residual


def shortcut(features: Tensor, like: Tensor) -> Tensor:
    """`features` itself, or every second pixel with zero channels added where the block changes size."""
    extra = like.shape[1] - features.shape[1]
    return F.pad(features[:, :, ::2, ::2], (0, 0, 0, 0, 0, extra)) if extra else features


def layers(block: type[Basic] | type[PreActivation]) -> dict[str, nn.Module]:
    """The three stages."""
    sizes = {"layer1": (16, 16, 1), "layer2": (16, 32, 2), "layer3": (32, 64, 2)}
    return {
        name: nn.Sequential(block(channels, out, stride), block(out, out, 1), block(out, out, 1))
        for name, (channels, out, stride) in sizes.items()
    }


def conv(channels: int, out: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution."""
    return nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
