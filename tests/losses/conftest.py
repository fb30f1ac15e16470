"""Shared pieces of the loss tests: a float64 batch, and losses of the table built to fit it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.losses import LOSSES, PairLoss

CLASSES, DIM = 6, 8


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Raw embeddings of 4 of the 6 classes, 1 + 3 + 4 + 2 rows: one class has no positive pair."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([5, 0, 2, 0, 3, 2, 0, 2, 3, 2])
    embeddings = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
    return (embeddings * 1.5).requires_grad_(), labels


@pytest.fixture
def build() -> Callable[..., nn.Module]:
    """A loss of the table in float64, with sizes where it needs them."""

    def build(name: str, **settings: Any) -> nn.Module:
        torch.manual_seed(1)
        sizes = {} if issubclass(LOSSES[name], PairLoss) else {"classes": CLASSES, "dim": DIM}
        return LOSSES[name](**sizes, **settings).double()

    return build
