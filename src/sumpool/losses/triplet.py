"""Triplet loss over all triplets.

Shape letters: B anchors, R references.
"""

from torch import Tensor

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import setting
from sumpool.ops.similarity import Norm, distance
from sumpool.ops.triplets import triplet_hinge


class Triplet(PairLoss):
    r"""Triplet: every positive closer than every negative by a margin, over all triplets.

    Schroff, Kalenichenko, Philbin, *FaceNet*, CVPR 2015. The mean over the non-zero terms $(d_{ap} - d_{an} + m)_+$ of
    all triplets, exact, in the memory of the distance matrix (`sumpool.ops.triplets`).
    """

    measure = staticmethod(distance)

    def __init__(self, margin: float = 0.05, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.margin = setting("margin", margin, 0)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `triplet_hinge`."""
        return triplet_hinge(matrix_BR, positives_BR, negatives_BR, self.margin)
