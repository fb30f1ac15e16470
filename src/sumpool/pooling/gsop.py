"""GSoP: gates computed from second-order statistics.

Shape letters: B images, N local features, D channels of the embedding, R reduced channels, K cells, X rows of a
covariance.
"""

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, average, linear
from sumpool.types import Pooled


def covariance(samples_BXY: Tensor) -> Tensor:
    """Covariance of the X variables over the last dimension, divided by its trace, (B,X,X)."""
    trace_B11 = samples_BXY.square().sum((1, 2), keepdim=True)
    return samples_BXY @ samples_BXY.mT / (trace_B11 + 1e-6)


def area(size: int, cells: int, like: Tensor) -> Tensor:
    """How much of each of `size` pixels lies in each of `cells` equal parts of their line, (cells, size)."""
    left = torch.arange(size, dtype=like.dtype, device=like.device) * (cells / size)
    start = torch.arange(cells, dtype=like.dtype, device=like.device).unsqueeze(1)
    return (torch.minimum(left + cells / size, start + 1) - torch.maximum(left, start)).clamp(min=0)


def cell_weights(grid: tuple[int, int], cells: int, like: Tensor) -> Tensor:
    """Area that every place of the grid shares with every cell, (cells², N)."""
    rows, columns = area(grid[0], cells, like), area(grid[1], cells, like)
    return (rows[:, None, :, None] * columns[None, :, None, :]).reshape(cells * cells, grid[0] * grid[1])


class RowGate(nn.Module):
    """A gate from a covariance: four weighted sums of every row, then a linear layer and σ, (B,X,X) → (B,outputs)."""

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(size, size, 4) * size**-0.5)
        self.out = nn.Linear(4 * size, outputs)

    def forward(self, covariance_BXX: Tensor) -> Tensor:
        """Apply the gate."""
        sums_XB4 = covariance_BXX.transpose(0, 1) @ self.rows
        gate: Tensor = self.out(nn.functional.leaky_relu(sums_XB4.transpose(0, 1).flatten(1), 0.1))
        return gate.sigmoid()


class GSoP(Pooling):
    r"""Global second-order pooling: channel and place gates from covariances, fused by the maximum, then averaged.

    .. math:: g = \frac1n \sum_j \max(a \odot y_j,\ s_j\, y_j), \qquad y_j = W f_j, \qquad
              a = \phi(\operatorname{cov} R y), \qquad s = \phi'(\operatorname{cov}' R' y)

    R and R′ are 1×1 convolutions with ReLU to `attention` channels. cov is the covariance of these channels over the
    places; cov′ that of `cells`×`cells` places (area-resampled, as is s) over the channels. φ is a row-wise convolution
    with four outputs per row, LeakyReLU, a linear layer and σ. Where the original keeps the covariances in range by
    BatchNorm, they are divided by their trace here, so images stay independent.

    Gao, Xie, Wang and Li, *Global second-order pooling convolutional networks*, CVPR 2019.
    """

    needs_grid = True

    def __init__(self, in_features: int, dim: int | None = None, attention: int = 128, cells: int = 8) -> None:
        super().__init__(in_features, dim)
        if attention < 1 or cells < 1:
            raise InputError(f"attention and cells must be at least 1, got {attention} and {cells}")
        self.cells = cells
        self.channel_reduction = nn.Linear(self.out_features, attention)
        self.place_reduction = nn.Linear(self.out_features, attention)
        self.channel_gate = RowGate(attention, self.out_features)
        self.place_gate = RowGate(cells * cells, cells * cells)

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Project, gate both ways, keep the larger, average."""
        assert grid is not None
        projected_BND = self.project(features_BNC)
        channel_BD = self._channels(projected_BND, mask_BN)
        place_BN = self._places(projected_BND, mask_BN, grid)
        channel_B1D, place_BN1 = channel_BD.unsqueeze(1), place_BN.unsqueeze(2)
        # max(a y, s y) is y times the larger gate where y > 0, the smaller one elsewhere: fewer passes over y.
        gate_BND = torch.where((channel_B1D > place_BN1) == (projected_BND > 0), channel_B1D, place_BN1)
        return Pooled(average(projected_BND * gate_BND, mask_BN), grid=grid)

    def _channels(self, projected_BND: Tensor, mask_BN: Tensor | None) -> Tensor:
        """The gate a of every channel, (B,D)."""
        reduced_BNR = linear(projected_BND, self.channel_reduction.weight, self.channel_reduction.bias).relu()
        full_BNR = at_least_float32(reduced_BNR)
        centred_BNR = full_BNR - average(full_BNR, mask_BN).unsqueeze(1)
        if mask_BN is not None:
            centred_BNR = centred_BNR * mask_BN.unsqueeze(2)
        gate: Tensor = self.channel_gate(covariance(centred_BNR.mT).to(projected_BND.dtype))
        return gate

    def _places(self, projected_BND: Tensor, mask_BN: Tensor | None, grid: tuple[int, int]) -> Tensor:
        """The gate s of every place, (B,N)."""
        reduced_BNR = linear(projected_BND, self.place_reduction.weight, self.place_reduction.bias).relu()
        full_BNR = at_least_float32(reduced_BNR)
        share_KN = cell_weights(grid, self.cells, full_BNR)
        share_BKN = share_KN.expand(full_BNR.shape[0], -1, -1) if mask_BN is None else share_KN * mask_BN.unsqueeze(1)
        total_BK1 = share_BKN.sum(2, keepdim=True).clamp(min=1e-6)
        cells_BKR = (share_BKN / total_BK1) @ full_BNR
        centred_BKR = cells_BKR - cells_BKR.mean(2, keepdim=True)
        gate_BK = self.place_gate(covariance(centred_BKR).to(projected_BND.dtype))
        place_BN: Tensor = gate_BK @ (share_KN / share_KN.sum(0)).to(projected_BND.dtype)
        return place_BN
