"""What the backbones that wrap a model of another library share: blocks to freeze, and tokens set apart."""

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from torch import Tensor, nn

from sumpool.backbones.base import Backbone
from sumpool.errors import InputError
from sumpool.types import Preprocessing

Self = TypeVar("Self", bound="Wrapped")


class Wrapped(Backbone):
    """A foreign model: a map (B,C,h,w), or the patch tokens (B,N,C) of a transformer in reading order.

    `as_map` arranges the patch tokens as a map, for poolings that need to know neighbours. The class and register
    tokens, `prefix_tokens` of them, never reach the pooling; `tokens` returns them beside the patches.
    """

    model: Any

    def __init__(
        self,
        model: nn.Module,
        out_features: int,
        preprocessing: Preprocessing,
        prefix_tokens: int,
        stride: int,
        as_map: bool,
    ) -> None:
        super().__init__({}, out_features, preprocessing)
        self.model = model
        self.prefix_tokens = prefix_tokens
        self.stride = stride
        self.as_map = as_map

    def run(self, images: Tensor) -> Tensor:
        """What the model gives before any pooling: a map (B,C,h,w) or all tokens (B,R+N,C)."""
        raise NotImplementedError

    def tokens(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(class and register tokens (B,R,C), patch tokens (B,N,C)) of a transformer."""
        output = self.run(images)
        if output.dim() != 3:
            raise InputError(f"this backbone gives maps, not tokens: its output has shape {tuple(output.shape)}")
        return output[:, : self.prefix_tokens], output[:, self.prefix_tokens :]

    def forward(self, images: Tensor) -> Tensor:
        """The local features of prepared images."""
        output = self.run(images)
        if output.dim() == 4:
            return output
        patches = output[:, self.prefix_tokens :]
        if not self.as_map:
            return patches
        height, width = images.shape[2:]
        rows, columns = height // self.stride, width // self.stride
        if rows * columns != patches.shape[1]:  # models that pad the image round up
            rows, columns = -(-height // self.stride), -(-width // self.stride)
        if rows * columns != patches.shape[1]:
            raise InputError(
                f"as_map expects one token per {self.stride}×{self.stride} pixels, got {patches.shape[1]} tokens for "
                f"{height}×{width} pixels: leave as_map off"
            )
        return patches.mT.reshape(images.shape[0], self.out_features, rows, columns)

    def blocks(self) -> list[nn.Module]:
        """The parts of the model from the image on, the layers of an encoder one by one."""
        return list(open_lists(self.model))

    def freeze(self: Self, blocks: int | Literal["all"] = 0, batchnorm: bool = False) -> Self:
        """As for every backbone; with the first block go the model's loose parameters, such as a class token."""
        super().freeze(blocks, batchnorm)
        for parameter in self.model.parameters(recurse=False):
            parameter.requires_grad_(blocks == 0)
        return self

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file in the names of the model itself."""
        return {f"model.{key}": value for key, value in weights.items()}


def open_lists(module: nn.Module) -> Iterator[nn.Module]:
    """The children of a module in order, with lists of layers, and encoders that hold such a list, opened."""
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            yield from child
        elif any(isinstance(part, nn.ModuleList) for part in child.children()):
            yield from open_lists(child)
        else:
            yield child
