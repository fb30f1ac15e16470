"""Embeddings that occur many times, as from a dead network or for blank images: each is ranked once for all.

Copies tie with one another in every ranking, so that comparing them pair by pair would take N² steps and tell nothing.
"""

from hashlib import blake2b

import torch
from torch import Tensor

from sumpool.retrieval.arrays import BLOCK, Embeddings, Members, take


def first_copies(embeddings: Embeddings, lengths: Tensor) -> Tensor:
    """The index of the first embedding that equals each one, (N,): its own where there is none before it."""
    first = torch.arange(len(embeddings))
    _, same, count = lengths.unique(return_inverse=True, return_counts=True)
    seen: dict[bytes, int] = {}
    for index in (count[same] > 1).nonzero().squeeze(1).split(BLOCK):  # only equal lengths can be copies
        rows = take(embeddings, index).add_(0.0).numpy()  # -0.0 becomes 0.0
        digests = (blake2b(row.tobytes(), digest_size=16).digest() for row in rows)
        found = [seen.setdefault(digest, at) for digest, at in zip(digests, index.tolist(), strict=True)]
        first[index] = torch.tensor(found, dtype=torch.int64)
    return first


class Copies:
    """Equal gallery items as groups, numbered by their first item."""

    def __init__(self, first: Tensor) -> None:
        self.first = first
        """Of every item, the first that equals it."""
        self.distinct, self.group = first.unique(return_inverse=True)
        self.members = Members(self.group, len(self.distinct))
        self.average = float(self.members.count.square().sum()) / len(first)
        """Mean over the items of how many equal it, itself included."""

    def ranked(self, items: Tensor, tied: Tensor, count: int) -> Tensor:
        """The first `count` items (n,count) of rankings (n,G) of distinct ones, `tied` with the one before or not."""
        group = self.group[items]
        size = self.members.count[group].clamp(max=count).flatten()
        place = torch.arange(int(size.sum())) - (size.cumsum(0) - size).repeat_interleave(size)
        copy = self.members.order[self.members.start[group].flatten().repeat_interleave(size) + place]
        level = (~tied).flatten().cumsum(0).repeat_interleave(size)  # the first of a row never ties
        keys = level * len(self.first) + copy  # items of one level are tied: by ascending index
        keys.numpy().sort()
        filled = size.view(group.shape).sum(1)
        return keys[(filled.cumsum(0) - filled)[:, None] + torch.arange(count)] % len(self.first)
