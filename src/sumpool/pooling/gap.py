"""Global average pooling."""

from torch import Tensor

from sumpool.pooling.base import Pooling, average, uniform_weights
from sumpool.types import Pooled


class GAP(Pooling):
    r"""Global average pooling: every local feature counts the same.

    .. math:: g = W\,\frac1n \sum_j f_j

    Lin, Chen and Yan, *Network in network*, ICLR 2014.
    """

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Average, then project."""
        vector = self.project_vector(average(features_BNC, mask_BN))
        return Pooled(vector, uniform_weights(features_BNC, mask_BN), grid=grid)
