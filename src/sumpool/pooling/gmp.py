"""Global max pooling.

Shape letters: B images, N local features, C channels.
"""

import math

import torch
from torch import Tensor

from sumpool.pooling.base import Pooling, reduce
from sumpool.types import Pooled


def global_max(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Largest value of every channel over the features that count, (B,N,C) → (B,C)."""
    if mask_BN is not None:
        features_BNC = features_BNC.masked_fill(~mask_BN.unsqueeze(2), -math.inf)
    return reduce(torch.max, features_BNC, 1).values  # the gradient of `amax` takes three times as long


class GMP(Pooling):
    r"""Global max pooling: the strongest response of every channel.

    .. math:: g = W v, \qquad v_c = \max_j f_{jc}

    Tolias, Sicre and Jégou, *Particular object retrieval with integral max-pooling of CNN activations*, ICLR 2016.
    """

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Take the maximum, then project."""
        return Pooled(self.project_vector(global_max(features_BNC, mask_BN)), grid=grid)
