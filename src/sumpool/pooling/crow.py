"""CroW: cross-dimensional weighting.

Shape letters: B images, N local features, C channels.
"""

import torch
from torch import Tensor

from sumpool.pooling.base import Pooling, at_least_float32, average, normalised, reduce, weighted_sum
from sumpool.types import Pooled


def spatial_weights(features_BNC: Tensor, mask_BN: Tensor | None = None) -> Tensor:
    r"""Weights :math:`\propto \sqrt{\sum_c f_{jc}}`, (B,N), of non-negative features.

    The norm that the original divides by before the root cancels when the weights are made to sum to 1. Where no
    channel responds the weight is 0 and so is its gradient, instead of the infinite slope of the root.
    """
    totals_BN = reduce(torch.sum, features_BNC, 2)
    shares_BN = totals_BN / totals_BN.amax(1, keepdim=True).clamp(min=1e-12)
    silent_BN = shares_BN < 1e-12
    return normalised(shares_BN.masked_fill(silent_BN, 1).sqrt().masked_fill(silent_BN, 0), mask_BN)


def channel_weights(features_BNC: Tensor, mask_BN: Tensor | None = None) -> Tensor:
    r"""Rarity :math:`-\log \frac1n \sum_j \sigma(f_{jc})` of every channel, (B,C)."""
    return -average(features_BNC.sigmoid(), mask_BN).log()


class CroW(Pooling):
    r"""Cross-dimensional weighting: strong places and rare channels count more.

    .. math:: g = W (I \odot \sum_j w_j f_j), \qquad w_j \propto \sqrt{\textstyle\sum_c f_{jc}}, \qquad
              I_c = -\log \frac1n \sum_j \sigma(f_{jc}), \qquad f \leftarrow \operatorname{ReLU}(f)

    The share of non-zero responses in the original's I_c is a count; the mean of σ is its differentiable form. Weights
    that sum to 1 change the length of g only.

    Kalantidis, Mellina and Osindero, *Cross-dimensional weighting for aggregated deep convolutional features*,
    ECCV workshops 2016.
    """

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Weight places and channels, then project."""
        features_BNC = features_BNC.relu()
        full_BNC = at_least_float32(features_BNC)
        weights_BN = spatial_weights(full_BNC, mask_BN)
        vector = channel_weights(full_BNC, mask_BN) * weighted_sum(full_BNC, weights_BN)
        return Pooled(self.project_vector(vector.to(features_BNC.dtype)), weights_BN, grid=grid)
