"""Contrastive loss with margins on the distance ("C2").

Shape letters: B anchors, R references.
"""

from torch import Tensor

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import setting
from sumpool.ops.pairs import mean_nonzero
from sumpool.ops.similarity import Norm, distance


def contrastive(
    distance_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, positive_margin: float, negative_margin: float
) -> Tensor:
    r"""$\overline{(d_{ap} - m^+)_+} + \overline{(m^- - d_{an})_+}$, each side averaged over its own non-zero terms.

    Hadsell, Chopra, LeCun, *Dimensionality reduction by learning an invariant mapping*, CVPR 2006, with the unsquared
    hinges and the averaging of Musgrave et al., *A metric learning reality check*, ECCV 2020.
    """
    pull = mean_nonzero(distance_BR - positive_margin, positives_BR)
    return pull + mean_nonzero(negative_margin - distance_BR, negatives_BR)


class Contrastive(PairLoss):
    """C2: positive pairs closer than one margin, negative pairs farther than another, in distance."""

    measure = staticmethod(distance)

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 0.5, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.positive_margin = setting("positive_margin", positive_margin, 0)
        self.negative_margin = setting("negative_margin", negative_margin, positive_margin)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `contrastive`."""
        return contrastive(matrix_BR, positives_BR, negatives_BR, self.positive_margin, self.negative_margin)
