"""What is done to the length of a pooled vector."""

from collections.abc import Callable

import torch
from torch import Tensor


def unit(vector: Tensor) -> Tensor:
    """v / ‖v‖: cosine similarity becomes the inner product; zero stays zero."""
    return _divided(vector, lambda norm: norm.clamp_min(torch.finfo(norm.dtype).tiny))


def lipschitz(vector: Tensor) -> Tensor:
    """v / max(1, ‖v‖): into the unit ball, unchanged inside it."""
    return _divided(vector, lambda norm: norm.clamp_min(1))


def none(vector: Tensor) -> Tensor:
    """The vector as it is."""
    return vector


def _divided(vector: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
    """The vector by a function of its norm, which half precision could not hold."""
    wide = vector.to(torch.promote_types(vector.dtype, torch.float32))
    return (wide / divisor(torch.linalg.vector_norm(wide, dim=-1, keepdim=True))).to(vector.dtype)


NORMALISATIONS: dict[str, Callable[[Tensor], Tensor]] = {"unit": unit, "lipschitz": lipschitz, "none": none}
