"""The mean hinge over all triplets, without listing them.

Shape letters: B anchors, R references, P positives of the anchor that has most.
"""

import torch
from torch import Tensor


def triplet_hinge(distance_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor, margin: float) -> Tensor:
    r"""Mean of the non-zero terms $(d_{ap} - d_{an} + m)_+$ over all triplets (anchor, positive, negative).

    The sum is piecewise linear: $d_{ap}$ enters as often as anchor $a$ has negatives closer than $d_{ap} + m$, and
    $d_{an}$ as often as it has positives with $d_{ap} + m > d_{an}$. Sorting each anchor's few positives and finding
    every negative's place among them gives both counts, exactly, in O(BR log P) time and O(BR) memory instead of the
    O(BPR) of the list of triplets. The counts are the gradient, too.
    """
    most = int(positives_BR.sum(1).amax()) if positives_BR.numel() else 0
    if most == 0:
        return distance_BR.sum() * 0
    with torch.no_grad():
        # Anchors with fewer positives are padded with thresholds of −inf, which no distance is below.
        thresholds_BP, column_BP = distance_BR.masked_fill(~positives_BR, -torch.inf).topk(most, sorted=True)
        ascending_BP = thresholds_BP.flip(1) + margin
        place_BR = torch.searchsorted(ascending_BP, distance_BR, right=True)
        histogram_BP = torch.zeros_like(place_BR[:, :1]).expand(-1, most + 1).clone()
        histogram_BP.scatter_add_(1, place_BR, negatives_BR.to(place_BR.dtype))
        nearer_BP = histogram_BP[:, :most].cumsum(1).flip(1)  # negatives nearer than the threshold, per positive
        farther_BR = (most - place_BR) * negatives_BR  # positives whose threshold exceeds the distance, per negative
        count = nearer_BP.sum().to(distance_BR.dtype)
    # A padded column has count 0: its distance enters nowhere.
    pulled = (distance_BR.gather(1, column_BP) * nearer_BP).sum()
    pushed = (distance_BR * farther_BR).sum()
    return (pulled - pushed + margin * count) / count.clamp(min=1)
