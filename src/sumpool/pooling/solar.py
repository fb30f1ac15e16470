"""SOLAR: second-order (non-local) attention, then generalised mean.

Shape letters: B images, N and K local features, C channels, R reduced channels.
"""

import math

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, linear
from sumpool.pooling.gem import generalised_mean
from sumpool.types import Pooled


class SOLAR(Pooling):
    r"""Second-order attention: every feature gathers from the features like it, then GeM.

    .. math:: g = W \operatorname{GeM}_p\bigl(f_j + U \textstyle\sum_k a_{jk} V f_k\bigr), \qquad
              a_{jk} = \operatorname{softmax}_k\bigl(q_j^\top k_k / \sqrt R\bigr)

    q and k are 1×1 convolutions of f with BatchNorm and ReLU. U starts at zero, where the layer is GeM. In training,
    BatchNorm sees the whole batch (of the features that count); at evaluation images are independent.

    Ng, Balntas, Tian and Mikolajczyk, *SOLAR: second-order loss and attention for image retrieval*, ECCV 2020.
    """

    def __init__(self, in_features: int, dim: int | None = None, reduction: int = 1, power: float = 3.0) -> None:
        super().__init__(in_features, dim)
        if not 1 <= reduction <= in_features:
            raise InputError(f"reduction must be between 1 and in_features = {in_features}, got {reduction}")
        if not power > 0:
            raise InputError(f"power must be positive, got {power}")
        reduced = in_features // reduction
        self.query, self.query_norm = nn.Linear(in_features, reduced), nn.BatchNorm1d(reduced)
        self.key, self.key_norm = nn.Linear(in_features, reduced), nn.BatchNorm1d(reduced)
        self.value = nn.Linear(in_features, reduced)
        self.out = nn.Linear(reduced, in_features)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.power = nn.Parameter(torch.tensor(float(power)))

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Gather, add, take the power mean, then project."""
        value_BKR = linear(features_BNC, self.value.weight, self.value.bias)
        gathered_BNR = (value_BKR.mT @ self._attention(features_BNC, mask_BN).mT).mT  # in the memory order of a map
        refined_BNC = features_BNC + linear(gathered_BNR, self.out.weight, self.out.bias)
        return Pooled(self.project_vector(generalised_mean(refined_BNC, self.power, mask_BN)), grid=grid)

    def _attention(self, features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
        """Weights a, (B,N,K), of the features K that feature N gathers from."""
        query_BNR = _normalise(linear(features_BNC, self.query.weight, self.query.bias), self.query_norm, mask_BN)
        key_BKR = _normalise(linear(features_BNC, self.key.weight, self.key.bias), self.key_norm, mask_BN)
        scale = query_BNR.shape[2] ** -0.5
        scores_BNK = (at_least_float32(query_BNR.relu()) * scale) @ at_least_float32(key_BKR.relu()).mT
        if mask_BN is not None:
            scores_BNK = scores_BNK.masked_fill(~mask_BN.unsqueeze(1), -math.inf)
        attention_BNK: Tensor = scores_BNK.softmax(2).to(features_BNC.dtype)
        return attention_BNK


def _normalise(features_BNR: Tensor, norm: nn.BatchNorm1d, mask_BN: Tensor | None) -> Tensor:
    """BatchNorm over the features that count."""
    if mask_BN is None or not norm.training:
        normed_BRN: Tensor = norm(features_BNR.mT)
        return normed_BRN.mT
    normed_BNR = torch.zeros_like(features_BNR)
    normed_BNR[mask_BN] = norm(features_BNR[mask_BN])
    return normed_BNR
