"""Circle loss.

Shape letters: B anchors, R references.
"""

from torch import Tensor
from torch.nn.functional import softplus

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import above_zero, setting
from sumpool.ops.pairs import masked_logsumexp, mean_nonzero
from sumpool.ops.similarity import Norm


def circle(
    similarity_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, relaxation: float, scale: float
) -> Tensor:
    r"""Mean non-zero $\log\bigl(1 + \sum_n e^{\gamma\alpha_n(s_{an} - m)} \sum_p e^{-\gamma\alpha_p(s_{ap} - 1 + m)}
    \bigr)$ over the anchors with both kinds of pairs; $\alpha_p = (1 + m - s_{ap})_+$, $\alpha_n = (s_{an} + m)_+$.

    Sun et al., *Circle loss: a unified perspective of pair similarity optimization*, CVPR 2020. The weights α are
    constants of the backward pass: far pairs pull or push harder.
    """
    weight_BR = similarity_BR.detach()
    pull_BR = -scale * (1 + relaxation - weight_BR).relu() * (similarity_BR - 1 + relaxation)
    push_BR = scale * (weight_BR + relaxation).relu() * (similarity_BR - relaxation)
    paired_B = positives_BR.any(1) & negatives_BR.any(1)
    pull_B = masked_logsumexp(pull_BR, positives_BR).where(paired_B, 0)
    push_B = masked_logsumexp(push_BR, negatives_BR).where(paired_B, 0)
    return mean_nonzero(softplus(pull_B + push_B), paired_B)


class Circle(PairLoss):
    """Circle: multi-similarity's kind of soft maxima, with pairs weighted by how far they are from their optimum."""

    def __init__(self, relaxation: float = 0.4, scale: float = 80.0, norm: Norm = "unit") -> None:
        super().__init__(norm)
        self.relaxation = setting("relaxation", relaxation, 0, 1)
        self.scale = above_zero("scale", scale)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `circle`."""
        return circle(matrix_BR, positives_BR, negatives_BR, self.relaxation, self.scale)
