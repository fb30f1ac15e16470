r"""Partial transport as the paper computes it, and the linear program it smooths: references for tests and studies.

Shape letters: B images, M prototypes, N local features of an image.
"""

from typing import Any

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.ops.transport import Transport

GRADIENTS = ("closed", "unrolled")


def paper_iteration(
    cost: Tensor, mass: float, sharpness: float, steps: int = 100, gradient: str = "closed"
) -> Transport:
    r"""The fixed-point iteration of Proposition 4.1, as published: plain exponentials, always `steps` steps.

    With :math:`s_j = \sum_i e^{-\varepsilon c_{ij}}` and t = 1 at first,
    :math:`\rho_j = \frac{1/n}{1 + t s_j}`, :math:`t = \mu / \sum_j s_j \rho_j`, and in the end
    :math:`\pi_{ij} = t\, e^{-\varepsilon c_{ij}} \rho_j`. It converges like μ^k, so `steps=100` is far from the
    solution for μ near 1, and it overflows or underflows for large ε in low precision.

    `gradient` is "closed" (Proposition 4.2, which supposes convergence) or "unrolled" (automatic differentiation
    through all the steps).
    """
    if gradient not in GRADIENTS:
        raise InputError(f"gradient must be one of {GRADIENTS}, got {gradient!r}")
    if gradient == "closed":
        plan_BMN, residual_BN = _ClosedForm.apply(cost, mass, sharpness, steps)
    else:
        plan_BMN, residual_BN = _iterate(cost, mass, sharpness, steps)
    weights_BN = (1 / cost.shape[2] - residual_BN) / mass
    settings = (cost.new_full((cost.shape[0], 1), value) for value in (mass, sharpness))
    return Transport(weights_BN, plan_BMN.sum(2) / mass, residual_BN, cost, *settings)


def _iterate(cost_BMN: Tensor, mass: float, sharpness: float, steps: int) -> tuple[Tensor, Tensor]:
    uniform = 1 / cost_BMN.shape[2]
    kernel_BMN = torch.exp(-sharpness * cost_BMN)
    total_BN = kernel_BMN.sum(1)
    t_B1 = torch.ones_like(total_BN[:, :1])
    residual_BN = torch.full_like(total_BN, uniform)
    for _ in range(steps):
        residual_BN = uniform / (1 + t_B1 * total_BN)
        t_B1 = mass / (total_BN * residual_BN).sum(1, keepdim=True)
    return kernel_BMN * (t_B1 * residual_BN)[:, None, :], residual_BN


class _ClosedForm(torch.autograd.Function):
    """Proposition 4.2: with q = ρ⊙g_ρ + (π⊙g_π)ᵀ1 and η = 1ᵀ(ρ⊙g_ρ) − n qᵀρ,
    ∂L/∂c = −ε (π⊙g_π − n π Diag(q − η ρ/(1 − μ − n ρᵀρ))).
    """

    @staticmethod
    def forward(ctx: Any, cost_BMN: Tensor, mass: float, sharpness: float, steps: int) -> tuple[Tensor, Tensor]:
        plan_BMN, residual_BN = _iterate(cost_BMN, mass, sharpness, steps)
        ctx.save_for_backward(plan_BMN, residual_BN)
        ctx.mass, ctx.sharpness = mass, sharpness
        return plan_BMN, residual_BN

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_plan_BMN: Tensor, grad_residual_BN: Tensor) -> tuple[Tensor, None, None, None]:
        plan_BMN, residual_BN = ctx.saved_tensors
        count = residual_BN.shape[1]
        weighted_BMN = plan_BMN * grad_plan_BMN
        own_BN = residual_BN * grad_residual_BN
        q_BN = own_BN + weighted_BMN.sum(1)
        eta_B1 = own_BN.sum(1, keepdim=True) - count * (q_BN * residual_BN).sum(1, keepdim=True)
        denominator_B1 = 1 - ctx.mass - count * (residual_BN * residual_BN).sum(1, keepdim=True)
        common_BN = q_BN - eta_B1 * residual_BN / denominator_B1
        return -ctx.sharpness * (weighted_BMN - count * plan_BMN * common_BN[:, None, :]), None, None, None


def linear_program(cost: Tensor, mass: float) -> Transport:
    r"""The problem without entropy (P1): minimise :math:`\sum c_{ij} \pi_{ij}` under the same constraints.

    Its solution is a fractional top-k: features in the order of :math:`\min_i c_{ij}` give their 1/n each to the
    nearest prototype until the mass μ is used. Ties go to the feature that comes first.
    """
    nearest = cost.min(1)
    order_BN = nearest.values.argsort(dim=1, stable=True)
    count = cost.shape[2]
    before_N = torch.arange(count, dtype=cost.dtype, device=cost.device) / count
    given_N = (mass - before_N).clamp(0, 1 / count)
    moved_BN = torch.zeros_like(nearest.values).scatter_(1, order_BN, given_N.expand(cost.shape[0], count))
    attributes_BM = cost.new_zeros(cost.shape[:2]).scatter_add_(1, nearest.indices, moved_BN / mass)
    settings = (cost.new_full((cost.shape[0], 1), value) for value in (mass, torch.finfo(cost.dtype).max))
    return Transport(moved_BN / mass, attributes_BM, 1 / count - moved_BN, cost, *settings)
