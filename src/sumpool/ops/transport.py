r"""Entropic partial transport, solved exactly: one scalar equation per image.

Move the fraction μ of the uniform mass on n features to m prototypes, keep the rest as ρ (problem P2):

.. math::
    \min_{\pi, \rho \ge 0} \sum_{ij} c_{ij} \pi_{ij}
        + \tfrac1\varepsilon \Big( \sum_{ij} \pi_{ij} \log \pi_{ij} + \sum_j \rho_j \log \rho_j \Big)
    \quad \text{s.t.} \quad \rho_j + \sum_i \pi_{ij} = \tfrac1n, \qquad \sum_{ij} \pi_{ij} = \mu .

With :math:`u_j = \operatorname{logsumexp}_i(-\varepsilon c_{ij})` the solution is
:math:`\pi_{ij} = \frac1n \sigma(u_j+\tau) \operatorname{softmax}_i(-\varepsilon c_{ij})` and
:math:`\rho_j = \frac1n \sigma(-u_j-\tau)`, where τ is the root of the increasing function
:math:`\operatorname{mean}_j \sigma(u_j+\tau) - \mu`. `docs/math/partial_transport.md` derives all of it.

Shape letters: B images, M prototypes, N local features of an image.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.ops.mass_equation import count, implicit_gradient, solve_shares, wide


class Transport(NamedTuple):
    """The solution of a batch of partial transport problems."""

    weights: Tensor
    """(B,N) pooling weights p_j = (1/n − ρ_j)/μ; they sum to 1."""
    attributes: Tensor
    """(B,M) share of the moved mass that each prototype receives; they sum to 1."""
    residual: Tensor
    """(B,N) mass ρ_j that stays; it sums to 1 − μ."""
    cost: Tensor
    mass: Tensor
    sharpness: Tensor

    @property
    def plan(self) -> Tensor:
        """(B,M,N) moved mass π_ij; made on demand, since weights and attributes do not need it in memory."""
        excess_BMN = self.cost - self.cost.detach().amin(1, keepdim=True)
        assignment_BMN = torch.softmax(-self.sharpness[:, :, None] * excess_BMN, dim=1)
        return assignment_BMN * (self.mass * self.weights)[:, None, :]


def partial_transport(
    cost: Tensor, mass: float | Tensor, sharpness: float | Tensor, mask: Tensor | None = None
) -> Transport:
    """Solve (P2) for every image: exact, in the log domain, differentiable twice in cost, mass and sharpness.

    Args:
        cost: (B,M,N) cost of moving feature j to prototype i, in any floating dtype; half precision is computed in
            float32 and returned in the input's dtype.
        mass: fraction μ of the mass to move, 0 < μ ≤ 1; a number or one per image (B,). At 1 the weights are uniform.
        sharpness: ε ≥ 0, which multiplies the cost; a number or one per image (B,). At 0 the weights are uniform;
            the larger it is, the closer the solution is to the linear program.
        mask: (B,N) boolean, True where a feature counts; None means all.

    The gradient is that of the exact solution (implicit function theorem), so memory does not grow with the number of
    solver steps.

    >>> cost = torch.tensor([[[0.0, 0.0, 2.0, 2.0]]])
    >>> partial_transport(cost, mass=0.5, sharpness=20.0).weights.round(decimals=3)
    tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    _check(cost, mass, sharpness, mask)
    dtype = cost.dtype
    compute = torch.promote_types(dtype, torch.float32)
    with torch.autocast(cost.device.type, enabled=False):
        cost_BMN = cost.to(compute)
        if mask is not None:
            cost_BMN = cost_BMN.masked_fill(~mask[:, None, :], 0)
        mass_B1 = _per_image(mass, cost_BMN)
        sharpness_B1 = _per_image(sharpness, cost_BMN)
        solve = _composed if torch.compiler.is_compiling() else _Fused.apply
        weights_BN, attributes_BM, residual_BN = solve(cost_BMN, mass_B1, sharpness_B1, mask)
    result = (weights_BN, attributes_BM, residual_BN, cost, mass_B1, sharpness_B1)
    return Transport(*(tensor.to(dtype) for tensor in result))


def _composed(
    cost_BMN: Tensor, mass_B1: Tensor, sharpness_B1: Tensor, mask_BN: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The solution from differentiable operations: what compilers and second derivatives use."""
    floor_B1N = cost_BMN.detach().amin(1, keepdim=True)
    logits_BMN = -sharpness_B1[:, :, None].to(cost_BMN.dtype) * (cost_BMN - floor_B1N)
    u_BN = wide(torch.logsumexp(logits_BMN, dim=1)) - sharpness_B1 * wide(floor_B1N[:, 0])
    share_BN, rest_BN = (shares.to(cost_BMN.dtype) for shares in _Share.apply(u_BN, mass_B1, mask_BN, cost_BMN.dtype))
    count_B1 = count(share_BN, mask_BN)
    weights_BN = share_BN / (count_B1 * mass_B1.to(cost_BMN.dtype))
    attributes_BM = (torch.softmax(logits_BMN, dim=1) * weights_BN[:, None, :]).sum(2)
    return weights_BN, attributes_BM, rest_BN / count_B1


class _Share(torch.autograd.Function):
    """u, μ → σ(u+τ), σ(−u−τ) at the root τ; the backward is written in its outputs, so it is differentiable again."""

    @staticmethod
    def forward(
        ctx: Any, u_BN: Tensor, mass_B1: Tensor, mask_BN: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        share_BN, rest_BN = solve_shares(u_BN, mass_B1, mask_BN, dtype)
        ctx.save_for_backward(share_BN, rest_BN, mask_BN)
        return share_BN, rest_BN

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        share_BN, rest_BN, mask_BN = ctx.saved_tensors
        return (*implicit_gradient(grads[0] - grads[1], share_BN, rest_BN, mask_BN), None, None)


class _Fused(torch.autograd.Function):
    """The same solution in as few passes over (B,M,N) as possible: one exponential per element, no plan in memory."""

    @staticmethod
    def forward(
        ctx: Any, cost_BMN: Tensor, mass_B1: Tensor, sharpness_B1: Tensor, mask_BN: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = cost_BMN.dtype
        floor = _floor(cost_BMN, sharpness_B1)
        kernel_BMN = torch.sub(cost_BMN, floor).mul_(-sharpness_B1[:, :, None].to(dtype)).exp_()
        total_BN = kernel_BMN.sum(1)
        u_BN = wide(total_BN).log() - sharpness_B1 * wide(floor.squeeze(1))
        share_BN, rest_BN = (shares.to(dtype) for shares in solve_shares(u_BN, mass_B1, mask_BN, dtype))
        moved_B1 = count(share_BN, mask_BN) * mass_B1.to(dtype)
        weights_BN = share_BN / moved_B1
        # The vector on the left: as a matrix-vector product the same is several times slower on CPUs.
        attributes_BM = torch.bmm((weights_BN / total_BN)[:, None, :], kernel_BMN.mT)[:, 0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(cost_BMN, mass_B1, sharpness_B1, mask_BN, kernel_BMN, total_BN, share_BN, rest_BN)
        return weights_BN, attributes_BM, rest_BN / count(share_BN, mask_BN)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        cost_BMN, mass_B1, sharpness_B1, mask_BN, kernel_BMN, total_BN, share_BN, rest_BN = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked for a gradient that is differentiable itself
            return (*_composed_gradient((cost_BMN, mass_B1, sharpness_B1), mask_BN, grads), None)
        grad_weights_BN, grad_attributes_BM, grad_residual_BN = grads
        count_B1 = count(share_BN, mask_BN)
        moved_B1 = count_B1 * mass_B1.to(share_BN.dtype)
        weights_BN = share_BN / moved_B1
        grad_BN = torch.zeros_like(share_BN) if grad_weights_BN is None else grad_weights_BN
        mean_BN = torch.zeros_like(share_BN)  # Σ_i softmax_ij ∂L/∂z_i
        if grad_attributes_BM is not None:
            mean_BN = torch.bmm(grad_attributes_BM[:, None, :], kernel_BMN)[:, 0] / total_BN
            grad_BN = grad_BN + mean_BN
        grad_share_BN = grad_BN / moved_B1
        if grad_residual_BN is not None:
            grad_share_BN = grad_share_BN - grad_residual_BN / count_B1
        grad_u_BN, grad_mass_B1 = implicit_gradient(grad_share_BN, share_BN, rest_BN, mask_BN)
        if ctx.needs_input_grad[1]:
            grad_mass_B1 = grad_mass_B1 - (grad_BN * weights_BN).sum(1, keepdim=True) / mass_B1
        # ∂L/∂(−ε c_ij) = softmax_ij (p_j ∂L/∂z_i + slope_j)
        slope_B1N = ((grad_u_BN - weights_BN * mean_BN) / total_BN)[:, None, :]
        if grad_attributes_BM is None:
            grad_logits_BMN = kernel_BMN * slope_B1N
        else:
            outer = (grad_attributes_BM[:, :, None], (weights_BN / total_BN)[:, None, :])
            grad_logits_BMN = torch.baddbmm(slope_B1N, *outer).mul_(kernel_BMN)
        grad_sharpness_B1 = None
        if ctx.needs_input_grad[2]:
            grad_sharpness_B1 = -(grad_logits_BMN * cost_BMN).sum((1, 2))[:, None]
        grad_cost_BMN = grad_logits_BMN.mul_(-sharpness_B1[:, :, None].to(share_BN.dtype))
        return grad_cost_BMN, grad_mass_B1, grad_sharpness_B1, None


def _composed_gradient(
    inputs: tuple[Tensor, Tensor, Tensor], mask_BN: Tensor | None, grads: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradient as a graph of its own, by differentiating the composed solution."""
    outputs = _composed(*inputs, mask_BN)
    asked = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad([o for o, _ in asked], wanted, [g for _, g in asked], create_graph=True))
    return [next(found) if tensor.requires_grad else None for tensor in inputs]


def _floor(cost_BMN: Tensor, sharpness_B1: Tensor) -> Tensor:
    """What to subtract from the costs so that no feature's exponentials all underflow.

    One number for the whole batch is cheaper than a minimum per feature, and enough unless ε times the range of the
    costs comes near the dtype's exponent range.
    """
    low, high = torch.aminmax(cost_BMN.detach())
    safe = -0.9 * math.log(torch.finfo(cost_BMN.dtype).tiny)
    if float((high - low) * sharpness_B1.detach().max()) < safe:
        return low.view(1, 1, 1)
    return cost_BMN.detach().amin(1, keepdim=True)


def _per_image(value: float | Tensor, cost_BMN: Tensor) -> Tensor:
    """A number or (B,) tensor as a wide (B,1) beside the cost."""
    if isinstance(value, Tensor):
        return wide(value.to(cost_BMN.device)).reshape(-1, 1).expand(cost_BMN.shape[0], 1)
    return wide(cost_BMN.new_empty(0)).new_full((cost_BMN.shape[0], 1), value)


def _check(cost: Tensor, mass: float | Tensor, sharpness: float | Tensor, mask: Tensor | None) -> None:
    if cost.dim() != 3 or 0 in cost.shape[1:]:
        raise InputError(f"cost must be (images, prototypes, features), none of them empty; got {tuple(cost.shape)}")
    if not cost.is_floating_point():
        raise InputError(f"cost must be floating point, got {cost.dtype}")
    for name, value in (("mass", mass), ("sharpness", sharpness)):
        if isinstance(value, Tensor) and value.numel() != 1 and value.shape != cost.shape[:1]:
            raise InputError(f"{name} must be a number or one per image ({cost.shape[0]},), got {tuple(value.shape)}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (cost.shape[0], cost.shape[2])):
        raise InputError(
            f"mask must be boolean ({cost.shape[0]}, {cost.shape[2]}), got {mask.dtype} {tuple(mask.shape)}"
        )
    if torch.compiler.is_compiling():
        return
    low, high = _extremes(mass)
    if not 0 < low <= high <= 1:
        raise InputError(f"mass must be in (0, 1], got {high if low > 0 else low}")
    low, high = _extremes(sharpness)
    if not 0 <= low <= high < math.inf:
        raise InputError(f"sharpness must be finite and at least 0, got {high if low >= 0 else low}")
    if mask is not None and not bool(mask.any(1).all()):
        raise InputError(f"mask hides every feature of image {int((~mask.any(1)).nonzero()[0])}; keep at least one")


def _extremes(value: float | Tensor) -> tuple[float, float]:
    if isinstance(value, Tensor):
        return float(value.detach().min()), float(value.detach().max())
    return float(value), float(value)
