"""Generalised mean pooling (GeM).

Shape letters: B images, N local features, C channels.
"""

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32
from sumpool.pooling.lse import log_mean_exp
from sumpool.types import Pooled

FLOOR = 1e-6


def generalised_mean(features_BNC: Tensor, power: Tensor, mask_BN: Tensor | None = None) -> Tensor:
    r"""Power mean of every channel, (B,N,C) → (B,C), of the features clamped to at least 1e-6.

    The log-sum-exp of log f with sharpness p: no power overflows, and it takes one logarithm and one exponential per
    value where :math:`f^p` and its gradient take both twice.
    """
    logs_BNC = at_least_float32(features_BNC).clamp(min=FLOOR).log()
    return log_mean_exp(logs_BNC, power, mask_BN).exp().to(features_BNC.dtype)


class GeM(Pooling):
    r"""Generalised mean (GeMean): between average (p = 1) and max (p → ∞), with one learned p.

    .. math:: g = W v, \qquad v_c = \Bigl(\frac1n \sum_j \max(f_{jc}, 10^{-6})^p\Bigr)^{1/p}

    Radenović, Tolias and Chum, *Fine-tuning CNN image retrieval with no human annotation*, TPAMI 2019.
    """

    def __init__(self, in_features: int, dim: int | None = None, power: float = 3.0) -> None:
        super().__init__(in_features, dim)
        if not power > 0:
            raise InputError(f"power must be positive, got {power}")
        self.power = nn.Parameter(torch.tensor(float(power)))

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Take the power mean, then project."""
        return Pooled(self.project_vector(generalised_mean(features_BNC, self.power, mask_BN)), grid=grid)
