"""Generalised max pooling (GeMax).

Shape letters: B images, N local features, C channels.
"""

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.pooling.base import Pooling, at_least_float32, weighted_sum
from sumpool.types import Pooled

NEWTON_STEPS = 40  # squarings of the residual 1 − 1/κ: enough for every condition number κ that float64 resolves


def ridge_weights(features_BNC: Tensor, ridge: float) -> Tensor:
    r"""Solution α of :math:`(K + \lambda I)\alpha = 1` with the Gram matrix :math:`K_{jk} = f_j^\top f_k`, (B,N).

    K has the rounding errors of its dtype, the system is solved in float64. λ is raised where it is below those
    errors, since K + λI need not be positive definite there; features of ordinary size never reach that.
    A masked (zero) feature has a system of its own, α = 1/λ, and changes no other.
    """
    with torch.autocast(features_BNC.device.type, enabled=False):
        gram_BNN = torch.matmul(features_BNC, features_BNC.mT)
    size = gram_BNN.shape[1]
    largest_B11 = gram_BNN.detach().amax((1, 2), keepdim=True).double()  # a squared norm, by Cauchy and Schwarz
    lifted_B11 = (4 * size * torch.finfo(gram_BNN.dtype).eps * largest_B11).clamp(min=ridge)
    system_BNN = gram_BNN.double() + lifted_B11 * torch.eye(size, dtype=torch.float64, device=gram_BNN.device)
    return _solve_ones(system_BNN).to(features_BNC.dtype)


def _solve_ones(system_BNN: Tensor) -> Tensor:
    """A⁻¹1 for positive definite A, differentiable in A.

    The solution x is found without a graph, then refined once with one: x + A⁻¹(1 − Ax) has the value of x and, A⁻¹
    being held constant, exactly the derivative −A⁻¹ dA x of the solution.
    """
    ones_BN1 = torch.ones_like(system_BNN[:, :, :1])
    if torch.compiler.is_exporting():  # ONNX has no factorisations, only products
        inverse_BNN = _newton_schulz(system_BNN.detach())
        solution_BN1 = inverse_BNN @ ones_BN1
        return (solution_BN1 + inverse_BNN @ (ones_BN1 - system_BNN @ solution_BN1)).squeeze(2)
    factor_BNN = torch.linalg.cholesky(system_BNN.detach())
    solution_BN1 = torch.cholesky_solve(ones_BN1, factor_BNN)
    return (solution_BN1 + torch.cholesky_solve(ones_BN1 - system_BNN @ solution_BN1, factor_BNN)).squeeze(2)


def _newton_schulz(system_BNN: Tensor) -> Tensor:
    """A⁻¹ of positive definite A by X ← X(2I − AX), from X = I / trace A, whose residual is below 1."""
    eye_NN = torch.eye(system_BNN.shape[1], dtype=system_BNN.dtype, device=system_BNN.device)
    inverse_BNN = eye_NN / (system_BNN * eye_NN).sum((1, 2), keepdim=True)
    for _ in range(NEWTON_STEPS):
        inverse_BNN = inverse_BNN @ (2 * eye_NN - system_BNN @ inverse_BNN)
    return inverse_BNN


class GeMax(Pooling):
    r"""Generalised max: the vector whose product with every local feature is as close to 1 as a ridge allows.

    .. math:: g = W v, \qquad v = \arg\min_v \sum_j (f_j^\top v - 1)^2 + \lambda \lVert v \rVert^2
              = \sum_j \alpha_j f_j, \qquad (K + \lambda I)\,\alpha = 1, \quad K_{jk} = f_j^\top f_k

    Frequent features are thereby down-weighted. λ → ∞ is the direction of sum pooling. The α may be negative, so there
    are no spatial weights.

    Murray and Perronnin, *Generalized max pooling*, CVPR 2014.
    """

    def __init__(self, in_features: int, dim: int | None = None, ridge: float = 1.0) -> None:
        super().__init__(in_features, dim)
        if not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}")
        self.ridge = ridge

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Solve for the coefficients, sum with them, then project."""
        full_BNC = at_least_float32(features_BNC)
        vector = weighted_sum(full_BNC, ridge_weights(full_BNC, self.ridge))
        return Pooled(self.project_vector(vector.to(features_BNC.dtype)), grid=grid)
