"""Losses and miners of pytorch-metric-learning inside reference sets. The package itself is not imported.

A pytorch-metric-learning loss is already a `loss(embeddings, labels)`: an `Objective` takes it as it is. These adapters
are for a memory or proxies around it, and for its miners around our losses.

Shape letters: B anchors, R references, D dimensions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.losses.base import PairLoss, Reference
from sumpool.losses.checks import checked
from sumpool.losses.triplet import Triplet
from sumpool.ops.pairs import pair_masks

Miner = Callable[..., tuple[Tensor, ...]]


class External(PairLoss):
    """A pytorch-metric-learning loss over pairs or triplets as a pair loss, for `Memory` and `Proxies`."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Tensor, labels: Any, reference: Reference | None = None) -> Tensor:
        """The loss of a batch against a reference set, by default against itself."""
        embeddings_BD, labels_B = checked(embeddings, labels)
        if reference is None:
            return self.loss(embeddings_BD, labels_B)
        positives_BR, negatives_BR = pair_masks(labels_B, reference.labels, reference.own)
        pairs = (*positives_BR.nonzero(as_tuple=True), *negatives_BR.nonzero(as_tuple=True))
        return self.loss(embeddings_BD, labels_B, pairs, reference.embeddings.to(embeddings_BD.dtype), reference.labels)


class Mined(PairLoss):
    """One of our pair losses over the pairs that a pytorch-metric-learning miner selects."""

    def __init__(self, loss: PairLoss, miner: Miner) -> None:
        super().__init__(loss.norm)
        self.loss = loss
        self.miner = miner
        self.measure = loss.measure

    def pairs(self, embeddings_BD: Tensor, labels_B: Tensor, reference: Reference) -> tuple[Tensor, Tensor]:
        """The mined pairs, without an anchor's own copy."""
        mined = self.miner(embeddings_BD, labels_B, reference.embeddings, reference.labels)
        if len(mined) == 3 and isinstance(self.loss, Triplet):
            raise InputError(
                "Triplet uses all triplets of the pairs it is given, which are more than a triplet miner selected: "
                "use a pair miner, or pytorch-metric-learning's TripletMarginLoss"
            )
        anchor, positive, other_anchor, negative = mined if len(mined) == 4 else (*mined[:2], mined[0], mined[2])
        allowed_BR, _ = pair_masks(labels_B, reference.labels, reference.own)
        positives_BR, negatives_BR = torch.zeros_like(allowed_BR), torch.zeros_like(allowed_BR)
        positives_BR[anchor, positive] = True
        negatives_BR[other_anchor, negative] = True
        return positives_BR & allowed_BR, negatives_BR

    def formula(self, matrix_BR: Tensor, positives_BR: Tensor, negatives_BR: Tensor) -> Tensor:
        """The inner loss's formula."""
        return self.loss.formula(matrix_BR, positives_BR, negatives_BR)
