"""Generalised mean of the features weighted by generalized sum pooling.

Shape letters: B images, N local features, C backbone channels, D embedding channels.
"""

import torch
from torch import Tensor, nn

from sumpool.pooling.gem import generalised_mean
from sumpool.pooling.gsp import GSP


class GeMGSP(GSP):
    r"""GeM+GSP: generalised mean, with a learned power, of the raw features scaled by their GSP weights.

    .. math:: g = W v, \qquad v_c = \Bigl(\frac1n \sum_j \max(n\,p_j f_{jc}, 10^{-6})^q\Bigr)^{1/q}

    with the weights p of `GSP`, whose settings these are, and q = 3 at first. The variant of the conventional protocol
    on ResNet-50.

    Gürbüz, Sener and Alatan, *Generalized sum pooling for metric learning*, ICCV 2023.
    """

    def extend(self) -> None:
        """Add the power."""
        self.power = nn.Parameter(torch.tensor(3.0))

    def combined(
        self, features_BNC: Tensor, features_BND: Tensor, weights_BN: Tensor, mask_BN: Tensor | None
    ) -> Tensor:
        """The projected generalised mean of the weighted raw features."""
        count = features_BNC.shape[1] if mask_BN is None else mask_BN.sum(1, keepdim=True)
        # In the weights' precision: in half precision n p f leaves the range where one feature holds all the weight.
        scaled_BNC = features_BNC * (weights_BN * count).unsqueeze(2)
        return self.project_vector(generalised_mean(scaled_BNC, self.power, mask_BN).to(features_BNC.dtype))
