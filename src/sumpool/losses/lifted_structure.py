"""Lifted structure loss.

Shape letters: B anchors, R references.
"""

import torch
from torch import Tensor

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import setting
from sumpool.ops.pairs import masked_logsumexp
from sumpool.ops.similarity import Norm, distance


def lifted_structure(
    distance_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, positive_margin: float, negative_margin: float
) -> Tensor:
    r"""Mean over the positive pairs of $\frac12 (J_{ap})_+^2$ with
    $J_{ap} = \log\bigl(\sum_{n\in N_a} e^{m^- - d_{an}} + \sum_{n\in N_p} e^{m^- - d_{np}}\bigr) + d_{ap} - m^+$.

    Oh Song et al., *Deep metric learning via lifted structured feature embedding*, CVPR 2016. The negatives of the
    positive p are the batch rows of column p, so that p may come from any reference set; the two sums are shared by
    all pairs of a row or a column.
    """
    exponent_BR = negative_margin - distance_BR
    of_anchor_B1 = masked_logsumexp(exponent_BR, negatives_BR, 1).unsqueeze(1)
    of_positive_R = masked_logsumexp(exponent_BR, negatives_BR, 0)
    pushed_BR = positives_BR & (negatives_BR.any(1, keepdim=True) | negatives_BR.any(0))
    both_BR = torch.logaddexp(of_anchor_B1, of_positive_R).where(pushed_BR, 0)
    hinge_BR = (both_BR + distance_BR - positive_margin).relu().where(pushed_BR, 0)
    return hinge_BR.square().sum() / (2 * positives_BR.count_nonzero().clamp(min=1))


class LiftedStructure(PairLoss):
    """Lifted structure: every positive pair against a soft minimum over the negatives of both its ends."""

    measure = staticmethod(distance)

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 1.0, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.positive_margin = setting("positive_margin", positive_margin, 0)
        self.negative_margin = setting("negative_margin", negative_margin, 0)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `lifted_structure`."""
        return lifted_structure(matrix_BR, positives_BR, negatives_BR, self.positive_margin, self.negative_margin)
