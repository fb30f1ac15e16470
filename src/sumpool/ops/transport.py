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
    """(B,M,N) as given, for the plan."""
    mass: Tensor
    """μ: a scalar, or (B,1)."""
    sharpness: Tensor
    """ε: a scalar, or (B,1)."""

    @property
    def plan(self) -> Tensor:
        """(B,M,N) moved mass π_ij; made on demand, since weights and attributes do not need it in memory."""
        excess_BMN = self.cost - self.cost.detach().amin(1, keepdim=True)
        assignment_BMN = torch.softmax(-_beside(self.sharpness, excess_BMN) * excess_BMN, dim=1)
        return assignment_BMN * (_beside(self.mass, self.weights) * self.weights)[:, None, :]


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
    compute = torch.promote_types(cost.dtype, torch.float32)
    with torch.autocast(cost.device.type, enabled=False):
        cost_BMN = cost.to(compute)
        if mask is not None:
            cost_BMN = cost_BMN.masked_fill(~mask[:, None, :], 0)
        mu, epsilon = _setting(mass, cost_BMN), _setting(sharpness, cost_BMN)
        solve = _composed if torch.compiler.is_compiling() else _Fused.apply
        weights_BN, attributes_BM, residual_BN = (
            result.to(cost.dtype) for result in solve(cost_BMN, mu, epsilon, mask)
        )
    return Transport(weights_BN, attributes_BM, residual_BN, cost, mu, epsilon)


def _composed(
    cost_BMN: Tensor, mass: Tensor, sharpness: Tensor, mask_BN: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The solution from differentiable operations: what compilers and second derivatives use."""
    floor_B1N = cost_BMN.detach().amin(1, keepdim=True)
    logits_BMN = -_beside(sharpness, cost_BMN) * (cost_BMN - floor_B1N)
    u_BN = wide(torch.logsumexp(logits_BMN, dim=1)) - sharpness * wide(floor_B1N[:, 0])
    share_BN, rest_BN = (part.to(cost_BMN.dtype) for part in _Share.apply(u_BN, mass, mask_BN, cost_BMN.dtype))
    n = count(share_BN, mask_BN)
    weights_BN = share_BN / (n * _beside(mass, share_BN))
    attributes_BM = (torch.softmax(logits_BMN, dim=1) * weights_BN[:, None, :]).sum(2)
    return weights_BN, attributes_BM, rest_BN / n


class _Share(torch.autograd.Function):
    """u, μ → σ(u+τ), σ(−u−τ) at the root τ; the backward is written in its outputs, so it is differentiable again."""

    @staticmethod
    def forward(
        ctx: Any, u_BN: Tensor, mass: Tensor, mask_BN: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        share_BN, rest_BN = solve_shares(u_BN, mass, mask_BN, dtype)
        ctx.shape = mass.shape
        ctx.save_for_backward(share_BN, rest_BN, mask_BN)
        return share_BN, rest_BN

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        share_BN, rest_BN, mask_BN = ctx.saved_tensors
        with_mass = ctx.needs_input_grad[1]
        grad_u_BN, grad_mass_B1 = implicit_gradient(grads[0] - grads[1], share_BN, rest_BN, mask_BN, with_mass)
        return grad_u_BN, None if grad_mass_B1 is None else grad_mass_B1.sum_to_size(ctx.shape), None, None


class _Fused(torch.autograd.Function):
    """The same solution in as few passes over (B,M,N) as possible: one exponential per element, no plan in memory."""

    @staticmethod
    def forward(
        ctx: Any, cost_BMN: Tensor, mass: Tensor, sharpness: Tensor, mask_BN: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        kernel_BMN, total_BN, u_BN = _kernel(cost_BMN, sharpness)
        shares = solve_shares(u_BN, _number(mass), mask_BN, cost_BMN.dtype)
        share_BN, rest_BN = (part.to(cost_BMN.dtype) for part in shares)
        n = count(share_BN, mask_BN)
        weights_BN = share_BN / (n * _number(_beside(mass, share_BN)))
        # The vector on the left: as a matrix-vector product the same is several times slower on CPUs.
        attributes_BM = torch.bmm((weights_BN / total_BN)[:, None, :], kernel_BMN.mT)[:, 0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(cost_BMN, mass, sharpness, mask_BN, kernel_BMN, total_BN, share_BN, rest_BN)
        return weights_BN, attributes_BM, rest_BN / n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        cost_BMN, mass, sharpness, mask_BN, kernel_BMN, total_BN, share_BN, rest_BN = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked for a gradient that is differentiable itself
            return (*_composed_gradient((cost_BMN, mass, sharpness), mask_BN, grads), None)
        grad_weights_BN, grad_attributes_BM, grad_residual_BN = grads
        n = count(share_BN, mask_BN)
        moved = n * _number(_beside(mass, share_BN))
        weights_BN = share_BN / moved
        grad_BN = torch.zeros_like(share_BN) if grad_weights_BN is None else grad_weights_BN
        mean_BN = torch.zeros_like(share_BN)  # Σ_i softmax_ij ∂L/∂z_i
        if grad_attributes_BM is not None:
            mean_BN = torch.bmm(grad_attributes_BM[:, None, :], kernel_BMN)[:, 0] / total_BN
            grad_BN = grad_BN + mean_BN
        grad_share_BN = grad_BN / moved
        if grad_residual_BN is not None:
            grad_share_BN = grad_share_BN - grad_residual_BN / n
        with_mass = ctx.needs_input_grad[1]
        grad_u_BN, grad_mass_B1 = implicit_gradient(grad_share_BN, share_BN, rest_BN, mask_BN, with_mass)
        grad_mass = grad_sharpness = None
        if grad_mass_B1 is not None:
            grad_mass_B1 = grad_mass_B1 - (grad_BN * weights_BN).sum(1, keepdim=True) / mass
            grad_mass = grad_mass_B1.sum_to_size(mass.shape)
        # ∂L/∂(−ε c_ij) = softmax_ij (p_j ∂L/∂z_i + slope_j). Unless it is needed as it is, −ε goes into small arrays.
        factor = -_number(_beside(sharpness, kernel_BMN))
        early = factor if not ctx.needs_input_grad[2] else 1
        slope_B1N = early * ((grad_u_BN - weights_BN * mean_BN) / total_BN)[:, None, :]
        if grad_attributes_BM is None:
            grad_BMN = slope_B1N * kernel_BMN
        else:
            scale_B1N = early * (weights_BN / total_BN)[:, None, :]
            grad_BMN = torch.addcmul(slope_B1N, grad_attributes_BM[:, :, None], scale_B1N).mul_(kernel_BMN)
        if ctx.needs_input_grad[2]:
            grad_sharpness = -(grad_BMN * cost_BMN).sum((1, 2))[:, None].sum_to_size(sharpness.shape)
            grad_BMN *= factor
        return grad_BMN, grad_mass, grad_sharpness, None


def _composed_gradient(
    inputs: tuple[Tensor, Tensor, Tensor], mask_BN: Tensor | None, grads: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradient as a graph of its own, by differentiating the composed solution."""
    outputs = _composed(*inputs, mask_BN)
    asked = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad([o for o, _ in asked], wanted, [g for _, g in asked], create_graph=True))
    return [next(found) if tensor.requires_grad else None for tensor in inputs]


def _kernel(cost_BMN: Tensor, sharpness: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{−ε c}, possibly scaled per feature; its sum over prototypes; and the logarithm u of the unscaled sum, wide."""
    factor = -_number(_beside(sharpness, cost_BMN))
    kernel_BMN = torch.mul(cost_BMN, factor).exp_()
    total_BN = kernel_BMN.sum(1)
    limits = torch.finfo(total_BN.dtype)
    low, high = torch.aminmax(total_BN) if len(total_BN) else (1.0, 1.0)  # no image, no extremes
    if low > limits.tiny / limits.eps and high < limits.max:
        return kernel_BMN, total_BN, wide(total_BN).log()
    # Some sum left the range of the dtype: take each feature's smallest cost as its origin.
    floor_B1N = cost_BMN.amin(1, keepdim=True)
    kernel_BMN = torch.sub(cost_BMN, floor_B1N).mul_(factor).exp_()
    total_BN = kernel_BMN.sum(1)
    return kernel_BMN, total_BN, wide(total_BN).log() - sharpness * wide(floor_B1N[:, 0])


def _setting(value: float | Tensor, cost_BMN: Tensor) -> Tensor:
    """A number as a wide scalar, one number per image as a wide (B,1)."""
    tensor = wide(torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64))
    return tensor.reshape(()) if tensor.numel() == 1 else tensor.to(cost_BMN.device).reshape(-1, 1)


def _number(setting: Tensor) -> float | Tensor:
    """A scalar as a Python number, which costs an operation less wherever it is used; anything else as it is."""
    return setting.item() if setting.dim() == 0 and setting.device.type == "cpu" else setting


def _beside(setting: Tensor, tensor: Tensor) -> Tensor:
    """A setting that broadcasts over `tensor` (B,N) or (B,M,N) and, as scalars do anyway, keeps its dtype."""
    return setting if setting.dim() == 0 else setting.to(tensor.dtype).reshape(-1, *[1] * (tensor.dim() - 1))


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
