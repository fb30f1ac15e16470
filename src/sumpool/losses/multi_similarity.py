"""Multi-similarity loss, with or without its pair mining.

Shape letters: B anchors, R references.
"""

from torch import Tensor
from torch.nn.functional import softplus

from sumpool.losses.base import PairLoss
from sumpool.losses.checks import above_zero, setting
from sumpool.ops.pairs import hard_pairs, masked_logsumexp
from sumpool.ops.similarity import Norm


def multi_similarity(
    similarity_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, alpha: float, beta: float, base: float
) -> Tensor:
    r"""Mean over the anchors of
    $\frac1\alpha\log\bigl(1 + \sum_p e^{-\alpha(s_{ap} - \lambda)}\bigr)
    + \frac1\beta\log\bigl(1 + \sum_n e^{\beta(s_{an} - \lambda)}\bigr)$.

    Wang et al., *Multi-similarity loss with general pair weighting for deep metric learning*, CVPR 2019.
    """
    pull_B = softplus(masked_logsumexp(alpha * (base - similarity_BR), positives_BR)) / alpha
    push_B = softplus(masked_logsumexp(beta * (similarity_BR - base), negatives_BR)) / beta
    return (pull_B + push_B).sum() / max(len(similarity_BR), 1)


class MultiSimilarity(PairLoss):
    """Multi-similarity: soft maxima over each anchor's positives and negatives; `mining` keeps only hard pairs."""

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 40.0,
        base: float = 0.5,
        mining: float | None = None,
        norm: Norm = "unit",
    ) -> None:
        super().__init__(norm)
        self.alpha = above_zero("alpha", alpha)
        self.beta = above_zero("beta", beta)
        self.base = setting("base", base, -1, 1)
        self.mining = None if mining is None else setting("mining", mining, 0)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """See `multi_similarity` and, for mining, `hard_pairs`."""
        if self.mining is not None:
            positives_BR, negatives_BR = hard_pairs(matrix_BR.detach(), positives_BR, negatives_BR, self.mining)
        return multi_similarity(matrix_BR, positives_BR, negatives_BR, self.alpha, self.beta, self.base)
