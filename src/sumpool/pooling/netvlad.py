"""NetVLAD: residuals to learned centres, softly assigned.

Shape letters: B images, N local features, K prototypes (centres), E channels per prototype.
"""

import torch
from torch import Tensor, nn

from sumpool.pooling.base import Pooling, at_least_float32, average, linear, share_of_dim
from sumpool.types import Pooled


def residual_sums(features_BNE: Tensor, assignment_BKN: Tensor, centres_KE: Tensor) -> Tensor:
    """Σ_j a_kj (f_j − ν_k) of every centre, (B,K,E), without the N·K residuals."""
    return assignment_BKN @ features_BNE - assignment_BKN.sum(2, keepdim=True) * centres_KE


class NetVLAD(Pooling):
    r"""NetVLAD: per centre, the unit-length sum of softly assigned residuals; all centres concatenated.

    .. math:: g = \Bigl[\, \frac{v_k}{\lVert v_k \rVert} \Bigr]_{k=1}^K, \qquad
              v_k = \sum_j a_{jk} (W f_j - \nu_k), \qquad a_j = \operatorname{softmax}(A W f_j + b)

    The projection comes first and maps to dim / K channels (without `dim`: none, and the vector has K·C channels). The
    attributes are the share of the features that each centre gets, mean_j a_jk.

    Arandjelović, Gronat, Torii, Pajdla and Sivic, *NetVLAD: CNN architecture for weakly supervised place recognition*,
    CVPR 2016.
    """

    def __init__(self, in_features: int, dim: int | None = None, prototypes: int = 16) -> None:
        super().__init__(in_features, share_of_dim(dim, prototypes))
        width = in_features if self.dim is None else self.dim
        self.dim = dim
        self.assignment = nn.Linear(width, prototypes)
        self.centres = nn.Parameter(torch.randn(prototypes, width) * width**-0.5)

    @property
    def out_features(self) -> int:
        """Length of the pooled vector."""
        return self.centres.numel()

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Project, assign, sum the residuals, normalise."""
        features_BNE = self.project(features_BNC)
        logits_BKN = linear(features_BNE, self.assignment.weight, self.assignment.bias).mT
        # The slope of the normalisation at a centre that nothing is assigned to is beyond float16.
        assignment_BKN = at_least_float32(logits_BKN).softmax(1)
        if mask_BN is not None:
            assignment_BKN = assignment_BKN * mask_BN.unsqueeze(1)
        with torch.autocast(features_BNE.device.type, enabled=False):
            sums_BKE = residual_sums(at_least_float32(features_BNE), assignment_BKN, at_least_float32(self.centres))
        vector = nn.functional.normalize(sums_BKE, dim=2).flatten(1).to(features_BNE.dtype)
        return Pooled(vector, attributes=average(assignment_BKN.mT, mask_BN), grid=grid)
