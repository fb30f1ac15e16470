"""Which images form a batch: deterministic by (seed, epoch), resumable inside an epoch, split over processes.

A sampler yields batches of `Draw`s. A draw carries its epoch and position, so that augmentation can be seeded by the
draw itself: the same whatever the number of workers or processes, and different when an image is drawn twice.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from numpy.random import default_rng
from torch.utils.data import Sampler

from sumpool.errors import InputError


class Draw(NamedTuple):
    """One image of one batch."""

    row: int
    """Of the dataset."""
    epoch: int
    position: int
    """Which draw of the epoch this is, counted over all processes."""


class BatchSampler(Sampler[list[Draw]]):
    """Batches of one epoch, from batch `start` on; with `world_size` processes each yields its share of every batch."""

    def __init__(self, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"rank must be between 0 and world_size − 1, got {rank} of {world_size}")
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.epoch = self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch, and the batch to begin with when resuming inside it."""
        self.epoch, self.start = epoch, start

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """Rows of the global batches `start`, `start` + 1, … of an epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[Draw]]:
        position = self.start * self.batch_size
        epoch = self.epoch
        for rows in self.batches(epoch, self.start):
            first, last = (len(rows) * share // self.world_size for share in (self.rank, self.rank + 1))
            if first < last:
                yield [Draw(rows[i], epoch, position + i) for i in range(first, last)]
            position += len(rows)

    @property
    def batch_size(self) -> int:
        """Images of a full batch over all processes."""
        raise NotImplementedError


class Shuffled(BatchSampler):
    """All images in random order, an incomplete last batch dropped: for training a classifier."""

    def __init__(self, count: int, batch_size: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(seed, rank, world_size)
        if not world_size <= batch_size <= count:
            raise InputError(f"batch_size must be between {world_size} and the {count} images, got {batch_size}")
        self.count, self._size = count, batch_size

    @property
    def batch_size(self) -> int:
        """As given."""
        return self._size

    def __len__(self) -> int:
        return self.count // self._size

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """A permutation, cut."""
        rows = default_rng((self.seed, epoch)).permutation(self.count).tolist()
        return islice(chunks(rows, self._size), start, len(self))


class InOrder(BatchSampler):
    """All images once, in order: for embedding a set."""

    def __init__(self, count: int, batch_size: int = 128, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(0, rank, world_size)
        if batch_size < 1 or count < 1:
            raise InputError(f"expected at least one image and one per batch, got {count} and {batch_size}")
        self.count, self._size = count, batch_size

    @property
    def batch_size(self) -> int:
        """As given."""
        return self._size

    def __len__(self) -> int:
        return math.ceil(self.count / self._size)

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """First to last."""
        return islice(chunks(range(self.count), self._size), start, None)


def chunks(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    """Consecutive pieces of at most `size`."""
    return (list(rows[start : start + size]) for start in range(0, len(rows), size))
