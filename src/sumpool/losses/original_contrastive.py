"""Contrastive loss on the cosine ("C1"), the loss XBM was published with.

Shape letters: B anchors, R references.
"""

import torch
from torch import Tensor

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import setting
from sumpool.ops.similarity import Norm


def original_contrastive(similarity_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, margin: float) -> Tensor:
    r"""$\frac1B \bigl(\sum_{ap} (1 - s_{ap})_+ + \sum_{an} (s_{an} - m)_+\bigr)$.

    Wang et al., *Cross-batch memory for embedding learning*, CVPR 2020. A sum per anchor, not a mean of the non-zero
    terms: with a memory as reference set its gradient grows with the memory, which is how XBM is tuned.
    """
    with torch.no_grad():
        pulled_BR = positives_BR & (similarity_BR < 1)
        pushed_BR = negatives_BR & (similarity_BR > margin)
        offset = pulled_BR.count_nonzero() - margin * pushed_BR.count_nonzero().to(similarity_BR.dtype)
        slope_BR = pushed_BR.to(similarity_BR.dtype).masked_fill_(pulled_BR, -1)
    # Piecewise linear: one inner product, whose gradient is the slopes, instead of a chain of (B,R) operations.
    return (torch.dot(similarity_BR.flatten(), slope_BR.flatten()) + offset) / max(len(similarity_BR), 1)


class OriginalContrastive(PairLoss):
    """C1: positive pairs towards cosine 1, negative pairs below a cosine margin."""

    def __init__(self, margin: float = 0.5, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.margin = setting("margin", margin, -1, 1)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `original_contrastive`."""
        return original_contrastive(matrix_BR, positives_BR, negatives_BR, self.margin)
