"""Sum of average and max pooling."""

from torch import Tensor

from sumpool.pooling.base import Pooling, average
from sumpool.pooling.gmp import global_max
from sumpool.types import Pooled


class GAPGMP(Pooling):
    r"""Average plus max pooling, the plain baseline of the conventional protocol.

    .. math:: g = W v, \qquad v_c = \frac1n \sum_j f_{jc} + \max_j f_{jc}

    Kim, Kim, Cho and Kwak, *Proxy anchor loss for deep metric learning*, CVPR 2020.
    """

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Add both, then project."""
        return Pooled(
            self.project_vector(average(features_BNC, mask_BN) + global_max(features_BNC, mask_BN)), grid=grid
        )
