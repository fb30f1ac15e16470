"""Attention pooling with a learned query.

Shape letters: B images, N local features, C channels.
"""

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.base import Pooling, at_least_float32, weighted_sum
from sumpool.types import Pooled


def attend(features_BNC: Tensor, query_C: Tensor, mask_BN: Tensor | None = None) -> Tensor:
    """Weights softmax_j(q·f_j / √C), (B,N)."""
    scores_BN = weighted_sum(features_BNC.mT, (query_C / query_C.shape[0] ** 0.5).expand(features_BNC.shape[0], -1))
    scores_BN = at_least_float32(scores_BN)
    if mask_BN is not None:
        scores_BN = scores_BN.masked_fill(~mask_BN, -math.inf)
    return scores_BN.softmax(1)


class Attention(Pooling):
    r"""Attention with one learned query q; q starts at zero, where it is average pooling.

    .. math:: g = W \sum_j w_j f_j, \qquad w = \operatorname{softmax}_j\bigl(q^\top f_j / \sqrt C\bigr)

    Ilse, Tomczak and Welling, *Attention-based deep multiple instance learning*, ICML 2018.
    """

    def __init__(self, in_features: int, dim: int | None = None) -> None:
        super().__init__(in_features, dim)
        self.query = nn.Parameter(torch.zeros(in_features))

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Sum with the attention weights, then project."""
        weights_BN = attend(features_BNC, self.query, mask_BN)
        return Pooled(self.project_vector(weighted_sum(features_BNC, weights_BN)), weights_BN, grid=grid)
