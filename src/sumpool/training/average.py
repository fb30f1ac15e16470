"""An exponential moving average of a model's weights."""

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


class Average(Generic[M]):
    """θ̄ ← β θ̄ + (1 − β) θ after every step; buffers are copied, since counters and statistics do not average."""

    def __init__(self, model: M, decay: float) -> None:
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False).eval(), decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the step that `model` has just made into account."""
        for mean, value in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(value, 1 - self.decay)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
