"""Similarities and distances between two sets of embeddings, normalised on the way.

Shape letters: B anchors, R references, D dimensions.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Norm = Literal["unit", "lipschitz", "none"]
# An embedding is divided by max(‖v‖, floor): always (unit), only outside the unit ball (Lipschitz), or not at all.
FLOORS: dict[str, float | None] = {"unit": 1e-12, "lipschitz": 1.0, "none": None}


def similarity(x_BD: Tensor, y_RD: Tensor, norm: Norm = "unit") -> Tensor:
    r"""Inner products $\bar x_b^\top \bar y_r$ of normalised vectors, (B,R); with the unit norm, cosines.

    $\bar v = v / \max(\lVert v\rVert, f)$ with $f = 0^+$ (unit) or $f = 1$ (Lipschitz, norm at most 1).
    No normalised copy of `y_RD` is made, in either direction: with tens of thousands of proxies that copy, not the
    product, is what fills the memory.

    >>> similarity(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.6, 0.8], [4.0, -3.0]]))
    tensor([[1., 0.]])
    """
    floor = FLOORS[norm]
    if floor is None:
        return x_BD @ y_RD.mT
    product: Tensor = _NormalisedProduct.apply(x_BD, y_RD, floor)
    return product


def distance(x_BD: Tensor, y_RD: Tensor, norm: Norm = "unit") -> Tensor:
    r"""Euclidean distances $\lVert\bar x_b - \bar y_r\rVert_2$ of normalised vectors, (B,R).

    Squared distances below the rounding error are 0 and have gradient 0, so that equal vectors do not pull with the
    infinite slope of the square root.
    """
    inner_BR = similarity(x_BD, y_RD, norm)
    if norm == "unit":
        squared_BR = 2 - 2 * inner_BR
    else:
        squared_BR = _squared_norm(x_BD, norm).unsqueeze(1) + _squared_norm(y_RD, norm) - 2 * inner_BR
    apart_BR = squared_BR > 4 * torch.finfo(squared_BR.dtype).eps
    return torch.where(apart_BR, squared_BR, 1).sqrt().where(apart_BR, 0)


def _squared_norm(x_BD: Tensor, norm: Norm) -> Tensor:
    squared_B = x_BD.square().sum(1)
    return squared_B.clamp(max=1) if norm == "lipschitz" else squared_B


class _NormalisedProduct(torch.autograd.Function):
    """The inner products; the factors 1/‖y‖ are applied to the (B,R) product instead of to the (R,D) vectors."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, y_RD: Tensor, floor: float) -> Tensor:
        x_factor_B1 = x_BD.norm(dim=1, keepdim=True).clamp_(min=floor).reciprocal_()
        y_factor_R = y_RD.norm(dim=1).clamp_(min=floor).reciprocal_()
        unit_BD = x_BD * x_factor_B1
        product_BR: Tensor = (unit_BD @ y_RD.mT).mul_(y_factor_R)
        ctx.floor = floor
        ctx.save_for_backward(unit_BD, x_factor_B1, y_RD, y_factor_R, product_BR if ctx.needs_input_grad[1] else None)
        return product_BR

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BR: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        unit_BD, x_factor_B1, y_RD, y_factor_R, product_BR = ctx.saved_tensors
        scaled_BR = grad_BR * y_factor_R
        grad_x = grad_y = None
        # d(v/‖v‖) = (I − v̄v̄ᵀ)/‖v‖ where the norm is divided out, 1/floor where it is below the floor.
        if ctx.needs_input_grad[0]:
            grad_x = scaled_BR @ y_RD
            radial_B1 = (grad_x * unit_BD).sum(1, keepdim=True) * (x_factor_B1 < 1 / ctx.floor)
            grad_x.addcmul_(unit_BD, radial_B1, value=-1).mul_(x_factor_B1)
        if ctx.needs_input_grad[1]:
            grad_y = scaled_BR.mT @ unit_BD
            radial_R = (grad_BR * product_BR).sum(0) * y_factor_R.square() * (y_factor_R < 1 / ctx.floor)
            grad_y.addcmul_(y_RD, radial_R.unsqueeze(1), value=-1)
        return grad_x, grad_y, None
