"""WELDON: the strongest and the weakest responses of every channel.

Shape letters: B images, N local features, C channels, D channels of the embedding, K chosen features.
"""

import math

from torch import Tensor

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling
from sumpool.types import Pooled


def extreme_sum(features_BNC: Tensor, count: int, largest: bool, mask_BN: Tensor | None = None) -> Tensor:
    """Sum of the `count` largest (or smallest) values of every channel, (B,N,C) → (B,C); of all where fewer count."""
    values_BCN = features_BNC.mT
    if mask_BN is not None:
        values_BCN = values_BCN.masked_fill(~mask_BN.unsqueeze(1), -math.inf if largest else math.inf)
    chosen_BCK = values_BCN.topk(min(count, values_BCN.shape[2]), largest=largest, sorted=False).values
    if mask_BN is not None:
        chosen_BCK = chosen_BCK.masked_fill(chosen_BCK.isinf(), 0)
    return chosen_BCK.sum(2)


class WELDON(Pooling):
    r"""Top and bottom instances: per channel, the k largest plus the k smallest responses.

    .. math:: g_d = \sum_{j \in \operatorname{top}_k} (W f_j)_d + \sum_{j \in \operatorname{bottom}_k} (W f_j)_d

    The projection comes first, so each embedding channel chooses its own places. An image with fewer than k features
    uses all of them.

    Durand, Thome and Cord, *WELDON: weakly supervised learning of deep convolutional neural networks*, CVPR 2016.
    """

    def __init__(self, in_features: int, dim: int | None = None, top: int = 3, bottom: int = 3) -> None:
        super().__init__(in_features, dim)
        if top < 1 or bottom < 1:
            raise InputError(f"top and bottom must be at least 1, got {top} and {bottom}")
        self.top, self.bottom = top, bottom

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Project, then sum the extremes."""
        projected_BND = self.project(features_BNC)
        top_BD = extreme_sum(projected_BND, self.top, True, mask_BN)
        return Pooled(top_BD + extreme_sum(projected_BND, self.bottom, False, mask_BN), grid=grid)
