r"""An inner product with a pooled vector, shared out among the local features it was pooled from.

Where the vector is a weighted sum, :math:`g = \sum_j p_j W f_j`, the share of place j in :math:`\langle g, d \rangle`
is :math:`p_j \langle W f_j, d \rangle`, with the weights taken as they came out. Other poolings get gradient times
input, :math:`\langle \partial \langle g, d\rangle / \partial f_j, f_j \rangle`: by Euler's theorem this also adds up
to the inner product wherever the pooling scales with its input (GMP, GeM, WELDON …), and leaves a rest elsewhere.

Shape letters: N local features, C channels of the backbone, D of the embedding, M prototypes.
"""

import torch
from torch import Tensor

from sumpool.pooling import GSP, Pooling
from sumpool.pooling.base import as_set
from sumpool.types import Pooled


def parts_of_sum(pooling: Pooling, features: Tensor, pooled: Pooled) -> Tensor | None:
    """p_j W f_j of one image, (N,D), which add up to its vector; None for a pooling that is no weighted sum."""
    if pooled.weights is None:
        return None
    features_BNC, _, _ = as_set(features, None, pooling.in_features, pooling.needs_grid, "explain")
    parts_ND = pooling.project(features_BNC)[0] * pooled.weights[0, :, None]
    vector_D = pooled.vector[0]
    same = parts_ND.shape[1] == len(vector_D) and torch.allclose(parts_ND.sum(0), vector_D, rtol=1e-3, atol=1e-5)
    return parts_ND if same else None


def place_shares(pooling: Pooling, features: Tensor, pooled: Pooled, direction_D: Tensor) -> Tensor:
    """Share of every place of one image in ⟨vector, direction⟩, (N,)."""
    parts_ND = parts_of_sum(pooling, features, pooled)
    if parts_ND is not None:
        return parts_ND @ direction_D
    with torch.enable_grad():
        leaf = features.detach().requires_grad_()
        product = pooling(leaf).vector[0] @ direction_D
        (gradient,) = torch.autograd.grad(product, leaf)
    channels = 1 if features.dim() == 4 else 2
    return (gradient * features).sum(channels).flatten()


def prototype_plan(pooling: Pooling, features: Tensor) -> Tensor | None:
    """π_ij/μ of one image, (M,N): what each prototype takes of each place, adding up to its attribute.

    None where there are no prototypes, or where they have not been picked yet.
    """
    if not isinstance(pooling, GSP) or not pooling.ready:
        return None
    features_BNC, _, _ = as_set(features, None, pooling.in_features, pooling.needs_grid, "explain")
    plan_MN = pooling.transport(pooling.project(features_BNC), None).plan[0]
    return plan_MN / plan_MN.sum()


def prototype_parts(pooling: Pooling, features: Tensor, pooled: Pooled) -> Tensor | None:
    """Σ_j (π_ij/μ) W f_j of one image, (M,D): the vector as a sum over prototypes; None where it is no such sum."""
    plan_MN = prototype_plan(pooling, features)
    if plan_MN is None or parts_of_sum(pooling, features, pooled) is None:
        return None
    features_BNC, _, _ = as_set(features, None, pooling.in_features, pooling.needs_grid, "explain")
    parts_MD = plan_MN.to(features.dtype) @ pooling.project(features_BNC)[0]
    # Prototypes of the background take what is left out of the vector.
    return parts_MD if torch.allclose(parts_MD.sum(0), pooled.vector[0], rtol=1e-3, atol=1e-5) else None
