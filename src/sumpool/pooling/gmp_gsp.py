"""Max pooling added to generalized sum pooling.

Shape letters: B images, N local features, C backbone channels, D embedding channels.
"""

from torch import Tensor

from sumpool.pooling.gmp import global_max
from sumpool.pooling.gsp import GSP


class GMPGSP(GSP):
    r"""GMP+GSP: the projected maximum of the raw features plus their generalized sum, through one projection.

    .. math:: g = W \max_j f_j + \sum_j p_j W f_j

    with the weights p of `GSP`, whose settings these are. The variant of the conventional protocol on BN-Inception.

    Gürbüz, Sener and Alatan, *Generalized sum pooling for metric learning*, ICCV 2023.
    """

    def combined(
        self, features_BNC: Tensor, features_BND: Tensor, weights_BN: Tensor, mask_BN: Tensor | None
    ) -> Tensor:
        """The weighted sum plus the projected maximum."""
        summed_BD = super().combined(features_BNC, features_BND, weights_BN, mask_BN)
        return summed_BD + self.project_vector(global_max(features_BNC, mask_BN))
