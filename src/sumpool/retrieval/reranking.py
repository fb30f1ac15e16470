r"""k-reciprocal re-ranking of a shortlist (Zhong et al., CVPR 2017).

With N(i,k) the k nearest of i (itself included), :math:`R(i,k) = \{j \in N(i,k) : i \in N(j,k)\}`, extended by every
:math:`R(j,k_1/2),\ j \in R(i,k_1)`, of which two thirds lie in :math:`R(i,k_1)`. Items become vectors
:math:`V_i(j) \propto e^{-d_{ij}}` on their extended sets, averaged over :math:`N(i,k_2)`, and the new distance is

.. math:: (1-\lambda)\Bigl(1 - \frac{\sum_j \min(V_q(j), V_i(j))}{\sum_j \max(V_q(j), V_i(j))}\Bigr) + \lambda\, d_{qi}.

The paper takes neighbourhoods in the whole gallery; here they are those within the query and its shortlist, so that
the cost depends on the shortlist and not on the gallery.
"""

import torch
from torch import Tensor

from sumpool.errors import InputError


def rerank(query: Tensor, shortlist: Tensor, k1: int = 20, k2: int = 6, weight: float = 0.3) -> Tensor:
    """New distances (m,) from a query (D,) to its shortlist (m,D); `weight` is the λ of the original distance."""
    if not (k1 >= 1 and k2 >= 1 and 0 <= weight <= 1):
        raise InputError(f"re-ranking needs k1 ≥ 1, k2 ≥ 1 and 0 ≤ weight ≤ 1, got {k1}, {k2} and {weight}")
    points = torch.cat([query[None], shortlist]).double()
    distance = torch.cdist(points, points).square()
    distance = distance / distance.amax().clamp(min=torch.finfo(torch.float64).tiny)
    order = distance.fill_diagonal_(-1).argsort(dim=1, stable=True)  # every point is its own nearest
    distance.fill_diagonal_(0)
    extended = _extended(order, k1)
    vectors = torch.exp(-distance) * extended
    vectors = vectors / vectors.sum(1, keepdim=True)
    vectors = vectors[order[:, :k2]].mean(1)
    smaller = torch.minimum(vectors[0], vectors[1:]).sum(1)
    jaccard = 1 - smaller / torch.maximum(vectors[0], vectors[1:]).sum(1)
    return (1 - weight) * jaccard + weight * distance[0, 1:]


def _extended(order: Tensor, k1: int) -> Tensor:
    """Who is in whose extended k-reciprocal set, (m,m) boolean."""
    mutual, half = _mutual(order, k1), _mutual(order, max(1, round(k1 / 2)))
    shared = mutual.double() @ half.double().T  # |R(i,k1) ∩ R(j,k1/2)|
    admitted = mutual & (shared >= 2 / 3 * half.sum(1))
    return mutual | (admitted.double() @ half.double() > 0)


def _mutual(order: Tensor, k: int) -> Tensor:
    near = torch.zeros(order.shape, dtype=torch.bool)
    near.scatter_(1, order[:, : k + 1], True)  # k neighbours and the point itself
    return near & near.T
