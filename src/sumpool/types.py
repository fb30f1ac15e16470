"""Records that pass between the layers."""

from typing import NamedTuple

from torch import Tensor


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
