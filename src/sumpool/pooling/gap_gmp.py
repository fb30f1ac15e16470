"""Sum of average and max pooling.

Shape letters: B images, N local features, C channels.
"""

from torch import Tensor

from sumpool.pooling.base import Pooling, average, reduce
from sumpool.pooling.gmp import global_max
from sumpool.types import Pooled


def average_plus_max(features_BNC: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Mean plus maximum of every channel over the features that count, (B,N,C) → (B,C)."""
    if mask_BN is not None:
        return average(features_BNC, mask_BN) + global_max(features_BNC, mask_BN)
    # In one reduction, so that both gradients are added in place.
    return reduce(lambda features, dim: features.mean(dim) + features.max(dim).values, features_BNC, 1)


class GAPGMP(Pooling):
    r"""Average plus max pooling, the plain baseline of the conventional protocol.

    .. math:: g = W v, \qquad v_c = \frac1n \sum_j f_{jc} + \max_j f_{jc}

    Kim, Kim, Cho and Kwak, *Proxy anchor loss for deep metric learning*, CVPR 2020.
    """

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Add both, then project."""
        return Pooled(self.project_vector(average_plus_max(features_BNC, mask_BN)), grid=grid)
