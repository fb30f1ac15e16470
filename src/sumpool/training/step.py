"""One training step."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses import Objective
from sumpool.training.chunks import backward_in_chunks
from sumpool.types import Batch, Pooled

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Stepper:
    """Forward, backward and update, in the chosen precision, at once or in chunks.

    `model` is what runs forward: the embedder itself, compiled, or wrapped for many processes.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        precision: str = "float32",
        clip_norm: float = 0.0,
        chunk: int = 0,
    ) -> None:
        self.model, self.objective, self.optimizer, self.device = model, objective, optimizer, device
        self.half, self.clip_norm, self.chunk = HALF.get(precision), clip_norm, chunk
        # Scaling keeps float16 gradients from vanishing; it does nothing for the other precisions.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.half == torch.float16)
        self.trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def __call__(self, batch: Batch, adjust: Callable[[], None] | None = None) -> dict[str, Tensor]:
        """Train on a batch; `adjust` may change the gradients before they are clipped. Returns the values to log."""
        images, labels = batch.images.to(self.device), batch.labels.to(self.device)
        self.optimizer.zero_grad()
        if self.chunk:
            values = backward_in_chunks(self.model, self.embed, self.loss, images, labels, self.chunk)
        else:
            pooled = self.embed(images)
            total, values = self.loss(pooled.vector, labels, pooled.attributes)
            total.backward()
        self.scaler.unscale_(self.optimizer)
        if adjust is not None:
            adjust()
        values["gradient norm"] = nn.utils.clip_grad_norm_(self.trained, self.clip_norm or math.inf)
        self.require_finite(values)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return values

    def require_finite(self, values: dict[str, Tensor]) -> None:
        """Refuse an update by a loss or gradient that is not finite: no later step would mend the weights."""
        finite = values["total"].isfinite()
        # A float16 gradient overflows now and then: the scaler leaves that step out and scales less.
        if not self.scaler.is_enabled():
            finite = finite & values["gradient norm"].isfinite()
        if not bool(finite):
            parts = ", ".join(f"{name} {float(value):.3g}" for name, value in values.items())
            raise InputError(f"the loss or its gradient is not finite ({parts})")

    def embed(self, images: Tensor) -> Pooled:
        """The forward pass in the chosen precision."""
        with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
            pooled: Pooled = self.model(images)
        return pooled

    def loss(self, vectors: Tensor, labels: Tensor, attributes: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """What to differentiate, and the values to log."""
        total, values = self.objective(vectors, labels, attributes)
        return self.scaler.scale(total), dict(values)
