"""Trainable tokens: what a network is in a study of local features alone."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sumpool.backbones.base import Backbone
from sumpool.errors import InputError
from sumpool.types import Preprocessing


class Tokens(Backbone):
    """A trainable vector per token id, each coordinate within ±`bound`: ids (B,N) in, local features (B,N,C) out."""

    def __init__(self, tokens: int = 68, channels: int = 2, bound: float = 0.3) -> None:
        if min(tokens, channels) < 1 or not bound > 0:
            raise InputError(f"expected tokens and channels ≥ 1 and bound > 0, got {tokens}, {channels} and {bound}")
        super().__init__({"table": Table(tokens, channels, bound)}, channels, Preprocessing())


class Table(nn.Module):
    """The vectors, uniform in the box at first and projected onto it before they are read (projected gradient)."""

    def __init__(self, tokens: int, channels: int, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.vectors = nn.Parameter(torch.empty(tokens, channels).uniform_(-bound, bound))

    def forward(self, ids: Tensor) -> Tensor:
        """The vectors of ids of any number type."""
        with torch.no_grad():
            self.vectors.clamp_(-self.bound, self.bound)
        return F.embedding(ids.long(), self.vectors)
