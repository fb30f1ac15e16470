"""Generalised mean pooling (GeM).

Shape letters: B images, N local features, C channels.
"""

import math

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, count
from sumpool.types import Pooled

FLOOR = 1e-6


def generalised_mean(features_BNC: Tensor, power: Tensor, mask_BN: Tensor | None = None) -> Tensor:
    r"""Power mean of every channel, (B,N,C) → (B,C), of the features clamped to at least 1e-6.

    Computed as :math:`\exp\frac1p\bigl(\operatorname{logsumexp}_j p \log f_{jc} - \log n\bigr)`, which no power
    overflows and which takes one logarithm and one exponential per value where :math:`f^p` takes both, twice.
    """
    logs_BNC = power * at_least_float32(features_BNC).clamp(min=FLOOR).log()
    if mask_BN is not None:
        logs_BNC = logs_BNC.masked_fill(~mask_BN.unsqueeze(2), -math.inf)
    return ((logs_BNC.logsumexp(1) - count(logs_BNC, mask_BN).log()) / power).exp().to(features_BNC.dtype)


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
