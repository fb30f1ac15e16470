"""What every pooling shares: input checking, the linear projection, and the `Pooled` result.

Shape letters: B images, N local features of an image, C channels of the backbone, D channels of the embedding.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.types import Pooled


class Pooling(nn.Module):
    """Pool local features, a map (B,C,H,W) or a set of tokens (B,N,C), into one vector per image.

    A subclass implements `pool` on the set (B,N,C), which for a map is a view, and uses `project` where its linear
    projection C → D belongs. `dim=None` means no projection: a drop-in for global average pooling.
    """

    needs_grid: ClassVar[bool] = False
    """Whether the method needs to know which features are neighbours; such a method refuses plain tokens."""

    def __init__(self, in_features: int, dim: int | None = None) -> None:
        super().__init__()
        if in_features < 1 or (dim is not None and dim < 1):
            raise InputError(f"in_features and dim must be at least 1, got {in_features} and {dim}")
        self.in_features = in_features
        self.dim = dim
        self.projection = None if dim is None else nn.Parameter(torch.empty(dim, in_features))
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    @property
    def out_features(self) -> int:
        """Length of the pooled vector."""
        return self.in_features if self.dim is None else self.dim

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Pooled:
        """Pool a batch; `mask` (B,N) or (B,H,W) is True where a local feature counts."""
        features_BNC, mask_BN, grid = as_set(features, mask, self.in_features, self.needs_grid, type(self).__name__)
        return self.pool(features_BNC, mask_BN, grid)

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Pool a checked set of local features."""
        raise NotImplementedError

    def project(self, features_BNC: Tensor) -> Tensor:
        """The linear projection of every feature, (B,N,C) → (B,N,D), as one matrix product that copies no map.

        A map arrives as a transposed view; multiplying from the left keeps its memory order, so the (B,D,N) product
        is what is stored and the returned (B,N,D) is again a view.
        """
        if self.projection is None:
            return features_BNC
        return torch.matmul(self.projection, features_BNC.mT).mT

    def project_vector(self, vector_BC: Tensor) -> Tensor:
        """The same projection applied after pooling, (B,C) → (B,D)."""
        return vector_BC if self.projection is None else nn.functional.linear(vector_BC, self.projection)

    def extra_repr(self) -> str:
        """The sizes, for `print(model)`."""
        return f"in_features={self.in_features}, dim={self.dim}"


def as_set(
    features: Tensor, mask: Tensor | None, channels: int, needs_grid: bool, name: str
) -> tuple[Tensor, Tensor | None, tuple[int, int] | None]:
    """A map or token batch as (set (B,N,C), mask (B,N), grid), after checking every shape."""
    if features.dim() == 4:
        grid = (features.shape[2], features.shape[3])
        features_BNC = features.flatten(2).mT
    elif features.dim() == 3 and not needs_grid:
        grid, features_BNC = None, features
    elif features.dim() == 3:
        raise InputError(f"{name} needs a map (B,C,H,W), got tokens {tuple(features.shape)}: it uses neighbourhoods")
    else:
        raise InputError(f"{name} expects a map (B,C,H,W) or tokens (B,N,C), got shape {tuple(features.shape)}")
    if features_BNC.shape[2] != channels:
        raise InputError(f"{name} was built for {channels} channels, got {features_BNC.shape[2]}")
    if features_BNC.shape[1] == 0:
        raise InputError(f"{name} got images without local features, shape {tuple(features.shape)}")
    if mask is None:
        return features_BNC, None, grid
    mask_BN = mask.flatten(1)
    if mask.dtype != torch.bool or mask_BN.shape != features_BNC.shape[:2]:
        raise InputError(
            f"mask must be boolean with one entry per local feature {tuple(features_BNC.shape[:2])}, "
            f"got {mask.dtype} {tuple(mask.shape)}"
        )
    if not torch.compiler.is_compiling() and not bool(mask_BN.any(1).all()):
        raise InputError(f"mask hides every local feature of image {int((~mask_BN.any(1)).nonzero()[0])}")
    return features_BNC, mask_BN, grid


def uniform_weights(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Weights 1/n on the n features that count, (B,N): what global average pooling uses."""
    if mask_BN is None:
        return features_BNC.new_full(features_BNC.shape[:2], 1 / features_BNC.shape[1])
    return mask_BN.to(features_BNC.dtype) / mask_BN.sum(1, keepdim=True)


def weighted_sum(features_BNC: Tensor, weights_BN: Tensor) -> Tensor:
    """Σ_j w_j f_j per image, (B,N,C) and (B,N) → (B,C), as one matrix product."""
    return torch.matmul(features_BNC.mT, weights_BN.to(features_BNC.dtype).unsqueeze(2)).squeeze(2)
