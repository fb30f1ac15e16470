"""Log-sum-exp pooling.

Shape letters: B images, N local features, C channels.
"""

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, count, reduce
from sumpool.pooling.gmp import global_max
from sumpool.types import Pooled


def log_mean_exp(features_BNC: Tensor, sharpness: float | Tensor, mask_BN: Tensor | None = None) -> Tensor:
    r"""Smooth maximum :math:`\frac1r \log \frac1n \sum_j e^{r f_{jc}}` of every channel, (B,N,C) → (B,C).

    The maximum is subtracted before the exponential and added after the logarithm; it cancels, gradient included, so
    it is held constant. Half precision is computed and returned in float32.
    """
    full_BNC = at_least_float32(features_BNC)
    peak_BC = global_max(full_BNC.detach(), mask_BN)
    shifted_BNC = full_BNC - peak_BC.unsqueeze(1)
    if mask_BN is not None:
        shifted_BNC = shifted_BNC.masked_fill(~mask_BN.unsqueeze(2), 0)  # any finite number, dropped below
    powers_BNC = (sharpness * shifted_BNC).exp()
    if mask_BN is not None:
        powers_BNC = powers_BNC * mask_BN.unsqueeze(2)
    total_BC = reduce(torch.sum, powers_BNC, 1)
    return peak_BC + (total_BC / count(full_BNC, mask_BN)).log() / sharpness


class LSE(Pooling):
    r"""Log-sum-exp: a smooth maximum between average (r → 0) and max (r → ∞), also for negative features.

    .. math:: g = W v, \qquad v_c = \frac1r \log \frac1n \sum_j e^{r f_{jc}}

    Pinheiro and Collobert, *From image-level to pixel-level labeling with convolutional networks*, CVPR 2015.
    """

    def __init__(self, in_features: int, dim: int | None = None, sharpness: float = 5.0) -> None:
        super().__init__(in_features, dim)
        if not sharpness > 0:
            raise InputError(f"sharpness must be positive, got {sharpness}")
        self.sharpness = sharpness

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Take the smooth maximum, then project."""
        vector = log_mean_exp(features_BNC, self.sharpness, mask_BN).to(features_BNC.dtype)
        return Pooled(self.project_vector(vector), grid=grid)
