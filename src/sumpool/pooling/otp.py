"""OTP: one pooled vector per prototype, by optimal transport.

Shape letters: B images, M prototypes, N local features, E channels per prototype, R memory rows.
"""

import math

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, average, share_of_dim
from sumpool.pooling.gsp import prototype_cost, remember
from sumpool.types import Pooled


def sinkhorn(cost_BMN: Tensor, sharpness: float, steps: int, mask_BN: Tensor | None = None) -> Tensor:
    r"""Entropic transport plan π, (B,M,N), after `steps` Sinkhorn iterations in the log domain.

    .. math:: \min_{\pi \ge 0} \sum_{ij} c_{ij} \pi_{ij} + \tfrac1\varepsilon \sum_{ij} \pi_{ij} \log \pi_{ij}
              \quad \text{s.t.} \quad \sum_j \pi_{ij} = \tfrac1m, \quad \sum_i \pi_{ij} = \tfrac1n .

    Scaling to a marginal is a softmax up to a constant. The prototypes are scaled last: each holds mass 1/m exactly,
    the mass of a feature nears 1/n.

    Cuturi, *Sinkhorn distances: lightspeed computation of optimal transport*, NIPS 2013.
    """
    log_plan_BMN = _hide(-sharpness * cost_BMN, mask_BN).log_softmax(2)
    for _ in range(steps):
        log_plan_BMN = _hide(log_plan_BMN.log_softmax(1), mask_BN).log_softmax(2)
    return log_plan_BMN.exp() / cost_BMN.shape[1]


def _hide(logits_BMN: Tensor, mask_BN: Tensor | None) -> Tensor:
    """Features that do not count get no mass; not −∞, of which the next scaling would make NaN."""
    return logits_BMN if mask_BN is None else logits_BMN.masked_fill(~mask_BN.unsqueeze(1), -1e30)


class OTP(Pooling):
    r"""Optimal transport aggregation: features are shared out evenly among m prototypes, one vector for each.

    .. math:: g = \sqrt m\, \Bigl[\, \sum_j \pi_{ij} W f_j \Bigr]_{i=1}^m

    with the plan π of `sinkhorn` for the costs of `GSP`. The projection comes first and maps to dim / m channels
    (without `dim`: none, and the vector has m·C channels): 8 × 16 for 128 channels, 64 × 128 for 8192. The weights are
    the mass of each feature. Every prototype holds the same mass, so there are no attributes. The prototypes start
    random and are picked once, as in `GSP`, when `memory` averaged images have been seen in training mode.

    Mialon, Chen, d'Aspremont and Mairal, *A trainable optimal transport embedding for feature aggregation and its
    relationship to attention*, ICLR 2021.
    """

    # Assigned by register_buffer.
    rows: Tensor
    seen: Tensor

    def __init__(
        self,
        in_features: int,
        dim: int | None = None,
        prototypes: int = 8,
        sharpness: float = 2.0,
        *,
        steps: int = 10,
        memory: int = 1024,
    ) -> None:
        super().__init__(in_features, share_of_dim(dim, prototypes))
        if not 0 <= sharpness < math.inf or steps < 1:
            raise InputError(f"sharpness must be finite and at least 0, steps at least 1, got {sharpness} and {steps}")
        if memory != 0 and memory < prototypes:
            raise InputError(f"memory must be 0 or at least the number of prototypes ({prototypes}), got {memory}")
        width = in_features if self.dim is None else self.dim
        self.dim, self.sharpness, self.steps, self.memory = dim, sharpness, steps, memory
        self.prototypes = nn.Parameter(torch.randn(prototypes, width) * width**-0.5)
        self.register_buffer("rows", torch.zeros(memory, width))
        self.register_buffer("seen", torch.tensor(0))

    @property
    def out_features(self) -> int:
        """Length of the pooled vector."""
        return self.prototypes.numel()

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Project, transport, sum per prototype."""
        features_BNE = self.project(features_BNC)
        if self.training and self.memory:
            remember(average(features_BNE.detach(), mask_BN), self.rows, self.seen, self.prototypes)
        with torch.autocast(features_BNE.device.type, enabled=False):
            cost_BMN = prototype_cost(at_least_float32(features_BNE), at_least_float32(self.prototypes))
            plan_BMN = sinkhorn(cost_BMN, self.sharpness, self.steps, mask_BN)
        sums_BME = (plan_BMN * len(self.prototypes) ** 0.5).to(features_BNE.dtype) @ features_BNE
        return Pooled(sums_BME.flatten(1), plan_BMN.sum(1), grid=grid)
