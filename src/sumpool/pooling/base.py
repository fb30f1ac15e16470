"""What every pooling shares: input checking, the linear projection, and the `Pooled` result.

Shape letters: B images, N local features of an image, C channels of the backbone, D channels of the embedding.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.registry import Configured
from sumpool.types import Pooled

T = TypeVar("T")
FEW_OUTPUTS = 64


class Pooling(Configured, nn.Module):
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
        """The linear projection of every feature, (B,N,C) → (B,N,D), without copying a map."""
        return features_BNC if self.projection is None else linear(features_BNC, self.projection)

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
    images, places, _ = features_BNC.shape
    wanted = (images, places) if grid is None or mask.dim() == 2 else (images, *grid)
    if mask.dtype != torch.bool or mask.shape != wanted:
        raise InputError(
            f"mask must be boolean with one entry per local feature {tuple(wanted)}, "
            f"got {mask.dtype} {tuple(mask.shape)}"
        )
    mask_BN = mask.flatten(1)
    if not torch.compiler.is_compiling() and not bool(mask_BN.any(1).all()):
        raise InputError(f"mask hides every local feature of image {int((~mask_BN.any(1)).nonzero()[0])}")
    # Zeros, so that whatever padding holds (even NaN) reaches neither a sum nor a gradient.
    return features_BNC.masked_fill(~mask_BN.unsqueeze(2), 0), mask_BN, grid


def uniform_weights(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Weights 1/n on the n features that count, (B,N): what global average pooling uses."""
    if mask_BN is None:
        return features_BNC.new_full(features_BNC.shape[:2], 1 / features_BNC.shape[1])
    return mask_BN.to(features_BNC.dtype) / mask_BN.sum(1, keepdim=True)


def weighted_sum(features_BNC: Tensor, weights_BN: Tensor) -> Tensor:
    """Σ_j w_j f_j per image, (B,N,C) and (B,N) → (B,C), as one matrix product."""
    sum_of = _product if torch.compiler.is_compiling() else _WeightedSum.apply
    vector_BC: Tensor = sum_of(features_BNC, weights_BN.to(features_BNC.dtype))
    return vector_BC


def _product(features_BNC: Tensor, weights_BN: Tensor) -> Tensor:
    return torch.matmul(weights_BN.unsqueeze(1), features_BNC).squeeze(1)


class _WeightedSum(torch.autograd.Function):
    """`_product` whose gradient lies in memory like the features, so that what made a map needs no copy of it."""

    @staticmethod
    def forward(features_BNC: Tensor, weights_BN: Tensor) -> Tensor:
        return _product(features_BNC, weights_BN)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        features_BNC, weights_BN = ctx.saved_tensors
        grad_BC = grads[0].to(features_BNC.dtype)
        grad_features = grad_weights = None
        if ctx.needs_input_grad[0] and features_BNC.mT.is_contiguous():
            grad_features = (grad_BC.unsqueeze(2) * weights_BN.unsqueeze(1)).mT
        elif ctx.needs_input_grad[0]:
            grad_features = weights_BN.unsqueeze(2) * grad_BC.unsqueeze(1)
        if ctx.needs_input_grad[1]:
            grad_weights = _product(features_BNC.mT, grad_BC)
        return grad_features, grad_weights


def linear(features_BNC: Tensor, weight_DC: Tensor, bias_D: Tensor | None = None) -> Tensor:
    """`nn.functional.linear` of every feature, (B,N,C) → (B,N,D), in the memory order of the features.

    A map arrives as a transposed view, which a plain matrix product would copy first. Both a batched product and a
    convolution of width 1 read it as it lies, and the returned (B,N,D) is again a transposed view. The gradient of the
    batched product holds a (D,C) matrix per image, so it is for few outputs.
    """
    if not features_BNC.mT.is_contiguous():
        return nn.functional.linear(features_BNC, weight_DC, bias_D)
    if weight_DC.shape[0] > FEW_OUTPUTS:
        return nn.functional.conv1d(features_BNC.mT, weight_DC.unsqueeze(2), bias_D).mT
    product_BND = torch.bmm(weight_DC.expand(features_BNC.shape[0], -1, -1), features_BNC.mT).mT
    return product_BND if bias_D is None else product_BND + bias_D


def reduce(reduction: Callable[[Tensor, int], T], features_BNC: Tensor, dim: int) -> T:
    """`reduction(features, dim)` over the places (dim 1) or the channels (dim 2) in the memory order of the features.

    PyTorch lays the gradient of a reduction out like the shape it was asked for, not like the memory it reads. For a
    map that is the other order, and whatever the gradient meets next walks through one of the two with large strides.
    """
    if features_BNC.mT.is_contiguous():
        return reduction(features_BNC.mT, 3 - dim)
    return reduction(features_BNC, dim)


def average(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Mean of the features that count, (B,N,C) → (B,C)."""
    if mask_BN is None and at_least_float32(features_BNC) is features_BNC:
        # The gradient of a sum is an expanded view, that of a mean is written out; but a half-precision sum overflows.
        return reduce(torch.sum, features_BNC, 1) / features_BNC.shape[1]
    if mask_BN is None:
        return reduce(torch.mean, features_BNC, 1)
    return weighted_sum(features_BNC, uniform_weights(features_BNC, mask_BN))


def count(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """How many features count, (B,1)."""
    if mask_BN is None:
        # Not a slice [:, :1]: an exported graph cannot know that it has one element.
        return features_BNC.new_full((features_BNC.shape[0], 1), features_BNC.shape[1])
    return mask_BN.sum(1, keepdim=True)


def normalised(scores_BN: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Non-negative scores as weights that sum to 1 over the features that count; uniform where all scores vanish."""
    scores_BN = scores_BN + torch.finfo(scores_BN.dtype).tiny
    if mask_BN is not None:
        scores_BN = scores_BN * mask_BN
    return scores_BN / scores_BN.sum(1, keepdim=True)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Half precision as float32, for maths whose intermediate values leave the range of float16; else unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def share_of_dim(dim: int | None, prototypes: int) -> int | None:
    """Channels per prototype for a pooling that concatenates one vector for each; None (no projection) stays None."""
    if prototypes < 1:
        raise InputError(f"prototypes must be at least 1, got {prototypes}")
    if dim is not None and (dim < prototypes or dim % prototypes):
        raise InputError(f"dim must be a multiple of the {prototypes} prototypes, which share it, got {dim}")
    return None if dim is None else dim // prototypes
