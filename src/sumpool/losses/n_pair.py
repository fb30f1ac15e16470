"""N-pair loss: one positive pair per class, all other classes' positives as negatives.

Shape letters: B anchors, R references, N pairs (one per class).
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import above_zero
from sumpool.ops.similarity import Norm


def n_pair(similarity_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, scale: float) -> Tensor:
    r"""Mean over the classes of $\log\bigl(1 + \sum_{j\ne i} e^{\gamma(s(a_i, p_j) - s(a_i, p_i))}\bigr)$.

    Sohn, *Improved deep metric learning with multi-class N-pair loss objective*, NIPS 2016. Class i takes part with
    the first of its anchors that has a positive, a_i, and that anchor's first positive, p_i.
    """
    anchor_N, positive_N = one_pair_per_class(positives_BR, negatives_BR)
    logits_NN = scale * similarity_BR[anchor_N][:, positive_N]
    target_N = torch.arange(len(anchor_N), device=similarity_BR.device)
    return cross_entropy(logits_NN, target_N, reduction="sum") / max(len(anchor_N), 1)


def one_pair_per_class(positives_BR: Tensor, negatives_BR: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the chosen pairs.

    The classes need not be known: an earlier anchor for which my positive is no negative is of my class.
    """
    paired_B = positives_BR.any(1)
    first_B = positives_BR.int().argmax(1)
    same_BB = ~negatives_BR[:, first_B].mT & paired_B  # [a, b]: anchor b has a positive and is of the class of a
    earlier_B = same_BB.tril(-1).any(1)
    anchor_N = (paired_B & ~earlier_B).nonzero().flatten()
    return anchor_N, first_B[anchor_N]


class NPair(PairLoss):
    """N-pair: each class's positive pair more similar than to every other class's positive."""

    def __init__(self, scale: float = 1.0, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.scale = above_zero("scale", scale)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `n_pair`."""
        return n_pair(matrix_BR, positives_BR, negatives_BR, self.scale)
