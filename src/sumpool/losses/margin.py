"""Margin loss: the contrastive loss with a boundary between positives and negatives that can be learned.

Shape letters: B anchors, R references.
"""

import torch
from torch import Tensor, nn

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import setting
from sumpool.ops.similarity import Norm, distance


def margin(
    distance_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, width: float, boundary: float | Tensor
) -> Tensor:
    r"""Mean non-zero term of $(d_{ap} - \beta + \alpha)_+$ and $(\beta - d_{an} + \alpha)_+$ over all triplets.

    Wu et al., *Sampling matters in deep embedding learning*, ICCV 2017; with β fixed it generalises the contrastive
    loss (margins β ∓ α). A triplet holds one positive and one negative term, so over all triplets a positive pair
    counts once per negative of its anchor and the other way round; no triplet has to be listed for that.
    """
    pull_BR = (distance_BR - boundary + width).relu() * negatives_BR.sum(1, keepdim=True)
    push_BR = (boundary - distance_BR + width).relu() * positives_BR.sum(1, keepdim=True)
    terms_BR = pull_BR.where(positives_BR, push_BR.where(negatives_BR, 0))
    repeats_BR = torch.where(positives_BR, negatives_BR.sum(1, keepdim=True), positives_BR.sum(1, keepdim=True))
    return terms_BR.sum() / (repeats_BR * (terms_BR > 0)).sum().clamp(min=1)


class Margin(PairLoss):
    """Generalised margin: distances of positives below and of negatives above a boundary that can be learned."""

    measure = staticmethod(distance)

    def __init__(
        self, width: float = 0.2, boundary: float = 1.2, learn_boundary: bool = False, norm: Norm = "unit"
    ) -> None:
        super().__init__(norm)
        self.width = setting("width", width, 0)
        initial = torch.tensor(float(setting("boundary", boundary, 0)))
        self.boundary: Tensor
        if learn_boundary:
            self.boundary = nn.Parameter(initial)
            self.weight_decay = False  # decaying would pull the boundary to distance 0
        else:
            self.register_buffer("boundary", initial)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `margin`."""
        return margin(matrix_BR, positives_BR, negatives_BR, self.width, self.boundary.to(matrix_BR.dtype))
