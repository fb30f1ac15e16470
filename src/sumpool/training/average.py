"""An exponential moving average of a model's weights."""

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

from sumpool.pooling import GSP

M = TypeVar("M", bound=nn.Module)


class Average(Generic[M]):
    """θ̄ ← β θ̄ + (1 − β) θ after every step; buffers are copied, since counters and statistics do not average.

    So are prototypes in the step that picks them: a mean with the random ones they replace would select at random.
    """

    def __init__(self, model: M, decay: float) -> None:
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False).eval(), decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the step that `model` has just made into account."""
        layers = zip(self.model.modules(), model.modules(), strict=True)
        pairs = [(mean, now) for mean, now in layers if isinstance(mean, GSP) and isinstance(now, GSP)]
        picked = [(mean, now) for mean, now in pairs if now.ready and not mean.ready]
        for mean, value in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(value, 1 - self.decay)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
        for layer, now in picked:
            layer.prototypes.copy_(now.prototypes)
