"""What the pair losses share: a formula over the (B,R) matrix between the batch and a reference set.

Shape letters: B anchors (the batch), R references, D dimensions.
"""

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses.checks import checked
from sumpool.ops.pairs import pair_masks
from sumpool.ops.similarity import FLOORS, Norm, similarity
from sumpool.registry import lookup


class Reference(NamedTuple):
    """A set of labelled embeddings that the batch is compared with: the batch itself, a memory, or proxies."""

    embeddings: Tensor
    """(R, D)"""
    labels: Tensor
    """(R,) integers."""
    own: Tensor | None = None
    """(B,) where each anchor itself is in the set; None if the anchors are not in it."""


class PairLoss(nn.Module):
    """A loss over positive and negative pairs between the batch and a reference set.

    A subclass is a `formula` of the matrix of similarities, or of distances if it sets `measure = distance`, and of
    the two masks. Half-precision embeddings are compared in single precision, also inside autocast: with scales such
    as β = 75, or near a distance of 0, the formulas need it.
    """

    measure = staticmethod(similarity)

    def __init__(self, norm: Norm = "unit") -> None:
        super().__init__()
        lookup("norm", FLOORS, norm)
        self.norm: Norm = norm

    def forward(self, embeddings: Tensor, labels: Any, reference: Reference | None = None) -> Tensor:
        """The loss of a batch against a reference set, by default against itself."""
        embeddings_BD, labels_B = checked(embeddings, labels)
        if reference is None:
            reference = Reference(embeddings_BD, labels_B, torch.arange(len(labels_B), device=labels_B.device))
        if reference.embeddings.shape[1] != embeddings_BD.shape[1]:
            raise InputError(
                f"the reference set holds {reference.embeddings.shape[1]}-D embeddings, the batch has "
                f"{embeddings_BD.shape[1]} dimensions"
            )
        with full_precision(embeddings_BD):
            return self.compute(embeddings_BD, labels_B, reference)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor, reference: Reference) -> Tensor:
        """The loss of checked input: matrix, masks, formula."""
        matrix_BR = self.measure(embeddings_BD, reference.embeddings.to(embeddings_BD.dtype), self.norm)
        return self.formula(matrix_BR, *self.pairs(embeddings_BD, labels_B, reference))

    def pairs(self, embeddings_BD: Tensor, labels_B: Tensor, reference: Reference) -> tuple[Tensor, Tensor]:
        """The positive and negative pairs: all of them."""
        return pair_masks(labels_B, reference.labels, reference.own)

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """The loss from similarities or distances and the two boolean masks."""
        raise NotImplementedError


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """No autocast to half precision inside."""
    return torch.autocast(tensor.device.type, enabled=False)
