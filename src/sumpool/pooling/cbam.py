"""CBAM: channel and spatial attention before average pooling.

Shape letters: B images, N local features, C channels.
"""

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, average, normalised, reduce, uniform_weights, weighted_sum
from sumpool.pooling.gmp import global_max
from sumpool.types import Pooled


class CBAM(Pooling):
    r"""Convolutional block attention: a gate per channel, then a gate per place, then the average.

    .. math:: g = W \frac1n \sum_j s_j\, (a \odot f_j), \qquad
              a = \sigma\bigl(M(\operatorname{mean}_j f_j) + M(\max_j f_j)\bigr), \qquad
              s = \sigma\bigl(\operatorname{conv}[\operatorname{mean}_c, \max_c](a \odot f)\bigr)

    M is a two-layer perceptron with C / `reduction` hidden units. The reported weights are s_j / Σ_k s_k.

    Woo, Park, Lee and Kweon, *CBAM: convolutional block attention module*, ECCV 2018.
    """

    needs_grid = True

    def __init__(self, in_features: int, dim: int | None = None, reduction: int = 1, kernel: int = 3) -> None:
        super().__init__(in_features, dim)
        if not 1 <= reduction <= in_features:
            raise InputError(f"reduction must be between 1 and in_features = {in_features}, got {reduction}")
        if kernel < 1 or kernel % 2 == 0:
            raise InputError(f"kernel must be odd and positive, got {kernel}")
        hidden = in_features // reduction
        self.channel = nn.Sequential(nn.Linear(in_features, hidden), nn.ReLU(), nn.Linear(hidden, in_features))
        self.spatial = nn.Conv2d(2, 1, kernel, padding=kernel // 2)

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Gate channels, gate places, average, then project."""
        summaries_2BC = torch.stack([average(features_BNC, mask_BN), global_max(features_BNC, mask_BN)])
        channel_BC = self.channel(summaries_2BC).sum(0).sigmoid()
        place_BN = self._places(features_BNC, channel_BC, grid)
        # The channel gate is the same at every place, so it is applied to the average.
        vector = channel_BC * weighted_sum(features_BNC, place_BN * uniform_weights(features_BNC, mask_BN))
        return Pooled(self.project_vector(vector), normalised(place_BN, mask_BN), grid=grid)

    def _places(self, features_BNC: Tensor, channel_BC: Tensor, grid: tuple[int, int] | None) -> Tensor:
        """The gate s of every place, (B,N); masked (zero) features look like the convolution's own padding."""
        assert grid is not None
        mean_BN = weighted_sum(features_BNC.mT, channel_BC / features_BNC.shape[2])
        max_BN = reduce(torch.max, features_BNC * channel_BC.unsqueeze(1), 2).values
        return at_least_float32(self.spatial(torch.stack([mean_BN, max_BN], 1).unflatten(2, grid)).flatten(1)).sigmoid()
