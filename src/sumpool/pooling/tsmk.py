"""T-SMK: smoothed, whitened descriptors weighted by the norm of the feature.

Shape letters: B images, H×W grid, N = H·W local features, C channels.
"""

import torch
from torch import Tensor, nn

from sumpool.pooling.base import Pooling, at_least_float32, normalised, weighted_sum
from sumpool.types import Pooled


def smoothed_weights(scores_BN: Tensor, mask_BN: Tensor | None, grid: tuple[int, int]) -> Tensor:
    r"""Weights of the *unsmoothed* features, (B,N), that equal `scores` on features averaged over 3×3 neighbours.

    With :math:`\bar f_j = \frac1{|N_j|} \sum_{k \in N_j} f_k` over the neighbours that exist and count,
    :math:`\sum_j a_j \bar f_j = \sum_k f_k \sum_{j \in N_k} a_j / |N_j|`: smoothing one number per place instead of C.
    """
    count_BN = torch.ones_like(scores_BN) if mask_BN is None else mask_BN.to(scores_BN.dtype)
    shared_BN = scores_BN * count_BN / _neighbour_sum(count_BN, grid).clamp(min=1)
    return normalised(_neighbour_sum(shared_BN, grid), mask_BN)


def _neighbour_sum(values_BN: Tensor, grid: tuple[int, int]) -> Tensor:
    """Sum of every value and its neighbours in the 3×3 window."""
    window_B1HW = values_BN.unflatten(1, grid).unsqueeze(1)
    # 9 times the mean with its zero padding: ONNX knows no `divisor_override`.
    return 9 * nn.functional.avg_pool2d(window_B1HW, 3, stride=1, padding=1).flatten(1)


class TSMK(Pooling):
    r"""T-SMK: 3×3 smoothing, linear whitening with bias, and attention by the norm of the raw feature.

    .. math:: g = \sum_j \frac{a_j}{\sum_k a_k} (W \bar f_j + b), \qquad a_j = \lVert f_j \rVert_2
              \text{ held constant}, \qquad \bar f_j = \operatorname{mean}_{k \in 3\times3(j)} f_k

    The original sums with the a_j themselves; dividing by their sum changes the length of g, not its direction.
    The reported weights are those of the raw features, smoothing included.

    Tolias, Jenicek and Chum, *Learning and aggregating deep local descriptors for instance-level recognition*,
    ECCV 2020.
    """

    needs_grid = True

    def __init__(self, in_features: int, dim: int | None = None) -> None:
        super().__init__(in_features, dim)
        self.bias = None if dim is None else nn.Parameter(torch.zeros(dim))

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Sum with the smoothed norms, then whiten."""
        assert grid is not None
        norms_BN = torch.linalg.vector_norm(at_least_float32(features_BNC.detach()), dim=2)
        weights_BN = smoothed_weights(norms_BN, mask_BN, grid)
        vector = self.project_vector(weighted_sum(features_BNC, weights_BN))
        return Pooled(vector if self.bias is None else vector + self.bias, weights_BN, grid=grid)
