"""Cross-batch memory (XBM) as reference set: the embeddings of past batches.

Shape letters: B anchors, R rows of the memory, D dimensions.
"""

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses.base import PairLoss, Reference
from sumpool.losses.checks import checked, setting, whole


class Memory(nn.Module):
    """Any pair loss within the batch plus, once it has started, against a memory of the last batches.

    Wang et al., *Cross-batch memory for embedding learning*, CVPR 2020. A ring of `batches` batches of raw embeddings
    without gradient, normalised when they are compared. The current batch is stored before it is compared, and an
    anchor's own copy is excluded. Batches are stored from the first step and compared after `start` steps, when the
    network drifts slowly. In evaluation mode nothing is stored and only the batch counts.

    The memory takes its size from the first batch and is part of the state dict.
    """

    embeddings: Tensor
    labels: Tensor
    step: Tensor
    stored: Tensor

    def __init__(self, loss: PairLoss, batches: int = 25, start: int = 1000, weight: float = 1.0) -> None:
        super().__init__()
        if not isinstance(loss, PairLoss):
            raise InputError(f"a memory needs a loss over pairs, got {type(loss).__name__}, which brings its own set")
        self.loss = loss
        self.batches = whole("batches", batches, 1)
        self.start = whole("start", start, 0)
        self.weight = setting("weight", weight, 0)
        self.register_buffer("embeddings", torch.empty(0, 0))
        self.register_buffer("labels", torch.empty(0, dtype=torch.long))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    def forward(self, embeddings: Tensor, labels: Any) -> Tensor:
        """The loss within the batch plus the weighted loss against the memory."""
        embeddings_BD, labels_B = checked(embeddings, labels)
        total: Tensor = self.loss(embeddings_BD, labels_B)
        if not self.training:
            return total
        reference = self.store(embeddings_BD.detach(), labels_B)
        self.step += 1
        if self.step > self.start:
            total = total + self.weight * self.loss(embeddings_BD, labels_B, reference)
        return total

    @torch.no_grad()
    def store(self, embeddings_BD: Tensor, labels_B: Tensor) -> Reference:
        """Overwrite the oldest rows with the batch; returns the filled part of the memory."""
        if self.embeddings.numel() == 0:
            self.embeddings = embeddings_BD.new_zeros(self.batches * len(embeddings_BD), embeddings_BD.shape[1])
            self.labels = labels_B.new_zeros(len(self.embeddings))
        if len(embeddings_BD) > len(self.embeddings) or embeddings_BD.shape[1] != self.embeddings.shape[1]:
            raise InputError(
                f"the memory holds {tuple(self.embeddings.shape)} since its first batch, got a batch of "
                f"{tuple(embeddings_BD.shape)}: keep batch size and dimension"
            )
        stored = int(self.stored)
        rows_B = (torch.arange(len(labels_B), device=labels_B.device) + stored) % len(self.embeddings)
        self.embeddings[rows_B] = embeddings_BD
        self.labels[rows_B] = labels_B
        self.stored += len(labels_B)
        filled = min(stored + len(labels_B), len(self.embeddings))
        return Reference(self.embeddings[:filled], self.labels[:filled], rows_B)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The buffers get their size with the first batch; a checkpoint brings the size along.
        for name in ("embeddings", "labels"):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=self.step.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)
