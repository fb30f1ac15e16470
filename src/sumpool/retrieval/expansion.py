r"""α-weighted query expansion: a query is replaced by a mean of itself and its nearest neighbours.

.. math:: q' \propto \hat q + \sum_{i=1}^{n} \max(\hat q^\top \hat x_i, 0)^{\alpha}\, \hat x_i

with unit vectors :math:`\hat q, \hat x_i` (Radenović et al., TPAMI 2018). α = 0 is average query expansion.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sumpool.errors import InputError


def expand_queries(queries: Tensor, neighbours: Tensor, alpha: float = 3.0) -> Tensor:
    """Expanded unit queries (Q,D) from queries (Q,D) and their nearest neighbours (Q,n,D).

    >>> expand_queries(torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0]]]), alpha=0.0)
    tensor([[0.7071, 0.7071]])
    """
    if alpha < 0:
        raise InputError(f"alpha of the query expansion must be at least 0, got {alpha}")
    queries, neighbours = normalize(queries.float(), dim=1), normalize(neighbours.float(), dim=2)
    weights = torch.einsum("qd,qnd->qn", queries, neighbours).clamp(min=0).pow(alpha)
    return normalize(queries + torch.einsum("qn,qnd->qd", weights, neighbours), dim=1)
