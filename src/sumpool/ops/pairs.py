"""Which pairs are positive or negative, and sums over them.

Shape letters: B anchors, R references.
"""

import torch
from torch import Tensor


def pair_masks(labels_B: Tensor, labels_R: Tensor, own_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Positives (same label) and negatives (another label), two boolean (B,R); an anchor's own copy is neither.

    `own_B` is the position of each anchor among the references, None if the anchors are not among them.

    >>> positives, negatives = pair_masks(torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1]), torch.arange(3))
    >>> positives.int().tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    negatives_BR = labels_B.unsqueeze(1) != labels_R
    positives_BR = ~negatives_BR
    if own_B is not None:
        positives_BR[torch.arange(len(own_B), device=own_B.device), own_B] = False
    return positives_BR, negatives_BR


def masked_logsumexp(values_BR: Tensor, mask_BR: Tensor, dim: int = 1) -> Tensor:
    r"""$\log\sum e^{v}$ over the entries where the mask is True; the lowest finite number where there is none.

    Being finite, an empty sum goes through `softplus` as an exact 0 with gradient 0.
    """
    lowest = torch.finfo(values_BR.dtype).min
    return torch.logsumexp(values_BR.masked_fill(~mask_BR, lowest), dim)


def mean_nonzero(hinges: Tensor, mask: Tensor) -> Tensor:
    """Mean of the positive entries under the mask; 0 if there is none."""
    active = mask & (hinges > 0)
    return hinges.where(active, 0).sum() / active.count_nonzero().clamp(min=1)


def hard_pairs(
    similarity_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, slack: float
) -> tuple[Tensor, Tensor]:
    r"""Multi-similarity mining: the pairs within `slack` of contradicting the anchor's hardest opposite pair.

    A negative is kept if $s_{an} + \epsilon > \min_p s_{ap}$, a positive if $s_{ap} - \epsilon < \max_n s_{an}$
    (Wang et al., CVPR 2019). An anchor without positives keeps no negatives, and the other way round.
    """
    inf = float("inf")
    hardest_positive_B1 = similarity_BR.masked_fill(~positives_BR, inf).amin(1, keepdim=True)
    hardest_negative_B1 = similarity_BR.masked_fill(~negatives_BR, -inf).amax(1, keepdim=True)
    return (
        positives_BR & (similarity_BR - slack < hardest_negative_B1),
        negatives_BR & (similarity_BR + slack > hardest_positive_B1),
    )
