"""What every backbone shares: stages in a row, freezing, gradient checkpointing and weights files."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from sumpool.backbones.weights import load_weights
from sumpool.errors import InputError
from sumpool.types import Preprocessing

Self = TypeVar("Self", bound="Backbone")


class Backbone(nn.Module):
    """Images (B,3,H,W) in, local features out: a map (B,C,h,w) or patch tokens (B,N,C), with C = `out_features`.

    A network of our own is a row of named stages. A subclass that wraps a foreign model overrides `forward`, `blocks`
    and `use_checkpointing` instead.
    """

    config: dict[str, Any]
    """Name and settings `create_backbone` was called with: enough to build the same network again."""

    def __init__(self, stages: Mapping[str, nn.Module], out_features: int, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.stages = nn.Sequential(OrderedDict(stages))
        self.out_features = out_features
        self.preprocessing = preprocessing
        self.checkpointing = False
        self.rebuild: dict[str, Any] = {}
        self._frozen: list[nn.Module] = []
        initialise(self.stages)

    def forward(self, images: Tensor) -> Tensor:
        """The local features of prepared images."""
        features = images
        for stage in self.stages:
            features = checkpointed(stage, features) if self.checkpointing and self.training else stage(features)
        return features

    def blocks(self) -> list[nn.Module]:
        """The parts that can be frozen one after another, from the image to the features."""
        return list(self.stages)

    def use_checkpointing(self) -> None:
        """Trade time for memory: while training, recompute a stage's activations instead of keeping them."""
        self.checkpointing = True

    def freeze(self: Self, blocks: int | Literal["all"] = 0, batchnorm: bool = False) -> Self:
        """Stop training the first `blocks` blocks, and every BatchNorm (its statistics and its affine part)."""
        parts = self.blocks()
        count = len(parts) if blocks == "all" else blocks
        if not 0 <= count <= len(parts):
            raise InputError(
                f"freeze must be between 0 and the {len(parts)} blocks of the network, or 'all', got {blocks}"
            )
        norms = [module for module in self.modules() if isinstance(module, _BatchNorm)] if batchnorm else []
        self._frozen = [*parts[:count], *norms]
        for module in self._frozen:
            module.requires_grad_(False)
        return self.train(self.training)

    def train(self: Self, mode: bool = True) -> Self:
        """Switch between training and evaluation; what is frozen stays in evaluation."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def load(self, weights: str | Path) -> None:
        """Load "pretrained" weights, or a file of the network's own or public layout: all of it or nothing."""
        if weights == "pretrained":
            self.load_pretrained()
        else:
            load_weights(self, weights, self.layout)

    def load_pretrained(self) -> None:
        """Load the weights that a package or hub carries for this network."""
        raise InputError(f"no package carries weights of {type(self).__name__}: pass the path of a weights file")

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The entries of a public weights file under the names of this network, without the classifier."""
        return weights


def initialise(stages: nn.Module) -> None:
    """He et al.'s normal initialisation of every convolution: variance 2 / (outputs each input pixel reaches)."""
    for module in stages.modules():
        if isinstance(module, nn.Conv2d):
            reach = module.out_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
            nn.init.normal_(module.weight, std=(2 / reach) ** 0.5)


def checkpointed(stage: nn.Module, features: Tensor) -> Tensor:
    """`stage(features)` whose activations are recomputed in the backward pass."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), untracked_statistics(stage)

    output: Tensor = checkpoint(stage, features, use_reentrant=False, context_fn=contexts)
    return output


@contextmanager
def untracked_statistics(stage: nn.Module) -> Iterator[None]:
    """Keep BatchNorm from counting a batch twice when its forward pass is recomputed."""
    norms = [module for module in stage.modules() if isinstance(module, _BatchNorm)]
    kept = [(module.momentum, module.num_batches_tracked) for module in norms]
    for module in norms:
        module.momentum, module.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for module, (momentum, batches) in zip(norms, kept, strict=True):
            module.momentum, module.num_batches_tracked = momentum, batches
