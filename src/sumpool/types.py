"""Records that pass between the layers."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from sumpool.errors import InputError


class Pooled(NamedTuple):
    """What every pooling returns for a batch of B images with N local features each."""

    vector: Tensor
    """(B, D) the pooled, projected vector."""
    weights: Tensor | None = None
    """(B, N) spatial weights: non-negative, summing to 1; None where the method has none."""
    attributes: Tensor | None = None
    """(B, M) pseudo-attributes: share of the pooled mass per prototype; None where the method has no prototypes."""
    grid: tuple[int, int] | None = None
    """(H, W) of the map the features came from; None for a plain set of tokens."""


class Batch(NamedTuple):
    """What a loader yields: B prepared images with their labels and their rows in the dataset."""

    images: Tensor
    """(B, C, H, W) float32, as the backbone wants them."""
    labels: Tensor
    """(B,) int64."""
    indices: Tensor
    """(B,) int64 row of each image in its dataset."""


@dataclass(frozen=True)
class Preprocessing:
    """How a network wants its images: pixels x in [0, 1] become scale · (x − mean) / std, channels in its order.

    >>> Preprocessing(size=224, mean=(0.5,), std=(0.5,), channels="gray").resize
    256
    """

    size: int = 227
    """Side of the square input."""
    resize: int = 256
    """Short side before the crop to `size`."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    """Per channel, in RGB order whatever `channels` says (ImageNet's by default); one number for gray."""
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Per channel, like `mean`."""
    channels: Literal["rgb", "bgr", "gray"] = "rgb"
    """Order of the channels in the tensor."""
    scale: float = 1.0
    """255 for networks that were trained on 0..255."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """How images are resized."""

    def __post_init__(self) -> None:
        count = 1 if self.channels == "gray" else 3
        if self.channels not in ("rgb", "bgr", "gray") or (len(self.mean), len(self.std)) != (count, count):
            raise InputError(f"preprocessing expects channels rgb, bgr or gray with as many means and stds, got {self}")
        if not 0 < self.size <= self.resize or min(self.std) <= 0 or self.interpolation not in ("bilinear", "bicubic"):
            raise InputError(f"preprocessing expects 0 < size ≤ resize, std > 0, bilinear or bicubic, got {self}")
