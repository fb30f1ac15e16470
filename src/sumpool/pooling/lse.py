"""Log-sum-exp pooling.

Shape letters: B images, N local features, C channels.
"""

import math

from torch import Tensor

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, count
from sumpool.types import Pooled


def log_mean_exp(features_BNC: Tensor, sharpness: float, mask_BN: Tensor | None = None) -> Tensor:
    r"""Smooth maximum :math:`\frac1r \log \frac1n \sum_j e^{r f_{jc}}` of every channel, (B,N,C) → (B,C)."""
    scaled_BNC = sharpness * at_least_float32(features_BNC)
    if mask_BN is not None:
        scaled_BNC = scaled_BNC.masked_fill(~mask_BN.unsqueeze(2), -math.inf)
    return ((scaled_BNC.logsumexp(1) - count(scaled_BNC, mask_BN).log()) / sharpness).to(features_BNC.dtype)


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
        return Pooled(self.project_vector(log_mean_exp(features_BNC, self.sharpness, mask_BN)), grid=grid)
