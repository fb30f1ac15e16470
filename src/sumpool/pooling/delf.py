"""DeLF: a small network scores every local feature.

Shape letters: B images, N local features, C channels, F filters.
"""

from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, linear, normalised, weighted_sum
from sumpool.types import Pooled


class DeLF(Pooling):
    r"""Attentive sum of the DELF descriptor: softplus scores of a two-layer network.

    .. math:: g = W \sum_j \frac{a_j}{\sum_k a_k} f_j, \qquad
              a_j = \operatorname{softplus}\bigl(u^\top \operatorname{ReLU}(V f_j + b) + c\bigr)

    The original sums with the a_j themselves. Dividing by their sum changes the length of g, not its direction, so the
    unit embedding is the same, and g keeps the range of the features, which float16 needs.

    Noh, Araujo, Sim, Weyand and Han, *Large-scale image retrieval with attentive deep local features*, ICCV 2017.
    """

    def __init__(self, in_features: int, dim: int | None = None, filters: int = 512) -> None:
        super().__init__(in_features, dim)
        if filters < 1:
            raise InputError(f"filters must be at least 1, got {filters}")
        self.hidden = nn.Linear(in_features, filters)
        self.score = nn.Linear(filters, 1)

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Sum with the normalised scores, then project."""
        hidden_BNF = linear(features_BNC, self.hidden.weight, self.hidden.bias).relu()
        scores_BN = linear(hidden_BNF, self.score.weight, self.score.bias).squeeze(2)
        weights_BN = normalised(nn.functional.softplus(at_least_float32(scores_BN)), mask_BN)
        return Pooled(self.project_vector(weighted_sum(features_BNC, weights_BN)), weights_BN, grid=grid)
