"""Proxies as reference set: K learned vectors per class.

Shape letters: B anchors, C classes, K proxies per class, D dimensions.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses.base import PairLoss, Reference, full_precision
from sumpool.losses.checks import Classes, above_zero, checked, setting, whole
from sumpool.losses.memory import Memory
from sumpool.ops.similarity import similarity


class ClassProxies(nn.Module):
    """K learned vectors per class; stored raw, normalised by the losses.

    `lr_multiplier` is what the learning rate of a module's own parameters is multiplied by, `weight_decay` whether they
    decay. Whoever builds an optimizer reads both from every module of the objective, with
    `getattr(module, "lr_multiplier", 1.0)` and `getattr(module, "weight_decay", True)`.
    """

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        per_class: int = 1,
        lr_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.classes = Classes(classes)
        self.lr_multiplier = above_zero("lr_multiplier", lr_multiplier)
        sizes = (self.classes.count, whole("per_class", per_class, 1), whole("dim", dim, 1))
        self.vectors = nn.Parameter(torch.empty(sizes))
        nn.init.normal_(self.vectors, std=(2 / dim) ** 0.5)

    def reference(self, dtype: torch.dtype) -> Reference:
        """All proxies with their class positions; no anchor is among them."""
        labels_C = torch.arange(self.classes.count, device=self.vectors.device)
        return Reference(self.vectors.flatten(0, 1).to(dtype), labels_C.repeat_interleave(self.vectors.shape[1]))

    def centres(self) -> Tensor:
        """(C, D) one centre per class: the mean direction of its proxies."""
        return nn.functional.normalize(self.vectors, dim=2).mean(1)

    @torch.no_grad()
    def reset(self, vectors: Tensor) -> None:
        """Overwrite the proxies in place, (C,K,D), so that an optimizer keeps training them."""
        if vectors.shape != self.vectors.shape:
            raise InputError(f"proxies have shape {tuple(self.vectors.shape)}, got {tuple(vectors.shape)}")
        self.vectors.copy_(vectors)

    def extra_repr(self) -> str:
        """The sizes, for `print(loss)`."""
        return f"classes, per_class, dim={tuple(self.vectors.shape)}, lr_multiplier={self.lr_multiplier}"


class Proxies(nn.Module):
    """Any pair loss between the batch and K proxies per class, plus a share of the same loss within the batch.

    The objective of one chance-constrained problem (CCP): `in_batch` is its weight of in-batch pairs, and
    `proxies.reset` starts the next problem with newly picked proxies. Around a `Memory`, the in-batch term is the
    memory's.
    """

    def __init__(
        self,
        loss: PairLoss | Memory,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        per_class: int = 8,
        in_batch: float = 0.1,
        lr_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        if not isinstance(loss, PairLoss | Memory):
            raise InputError(f"proxies need a loss over pairs, got {type(loss).__name__}, which brings its own set")
        self.loss = loss
        self.proxies = ClassProxies(classes, dim, per_class, lr_multiplier)
        self.in_batch = setting("in_batch", in_batch, 0)
        if isinstance(loss, Memory) and not in_batch:
            raise InputError(
                "in_batch weighs the memory's term, got 0: give it a weight, or leave out the memory (xbm)"
            )

    def forward(self, embeddings: Tensor, labels: Any) -> Tensor:
        """The loss against the proxies and, weighted, within the batch."""
        embeddings, labels_B = checked(embeddings, self.proxies.classes.index(labels))
        pairs = self.loss.loss if isinstance(self.loss, Memory) else self.loss
        total: Tensor = pairs(embeddings, labels_B, self.proxies.reference(embeddings.dtype))
        if self.in_batch:
            total = total + self.in_batch * self.loss(embeddings, labels_B)
        return total


class ProxyLoss(nn.Module):
    """A loss that is defined with proxies: a `formula` of the cosines to all proxies and the class positions."""

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        per_class: int = 1,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__()
        self.proxies = ClassProxies(classes, dim, per_class, lr_multiplier)

    def forward(self, embeddings: Tensor, labels: Any) -> Tensor:
        """The loss of a batch."""
        index_B = self.proxies.classes.index(labels)
        embeddings_BD, index_B = checked(embeddings, index_B)
        vectors = self.proxies.vectors
        if embeddings_BD.shape[1] != vectors.shape[2]:
            raise InputError(f"the proxies have {vectors.shape[2]} dimensions, the batch {embeddings_BD.shape[1]}")
        with full_precision(embeddings_BD):
            cosines_BR = similarity(embeddings_BD, vectors.flatten(0, 1).to(embeddings_BD.dtype))
            return self.formula(cosines_BR.unflatten(1, vectors.shape[:2]), index_B)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """The loss from the cosines to the proxies and every row's class position."""
        raise NotImplementedError
