"""Batches by class: P classes × K images, and one pool of images per class."""

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
from numpy.random import Generator, default_rng
from torch import Tensor

from sumpool.data.samplers import BatchSampler, chunks
from sumpool.errors import InputError


class Deck:
    """Deals items in random order: all of them before any repeats, none twice in one hand while there are enough."""

    def __init__(self, items: Sequence[int]) -> None:
        self.items = list(items)
        self.pile: list[int] = []

    def deal(self, count: int, rng: Generator) -> list[int]:
        """`count` items; more than there are means whole rounds first."""
        rounds, count = divmod(count, len(self.items))
        hand = [item for _ in range(rounds) for item in self._shuffled(rng)]
        cut = max(len(self.pile) - count, 0)
        rest, self.pile = self.pile[cut:], self.pile[:cut]
        if len(rest) < count:
            held = set(rest)
            fresh = [item for item in self._shuffled(rng) if item not in held]
            new = fresh[: count - len(rest)]
            # Items of `rest` that the new round still owes are dealt right after this hand.
            self.pile = fresh[len(new) :] + rest
            rest = rest + new
        return hand + rest

    def _shuffled(self, rng: Generator) -> list[int]:
        return [self.items[i] for i in rng.permutation(len(self.items))]


Decks: TypeAlias = tuple[Generator, Deck, list[Deck]]
"""Random state, the deck of classes, a deck of images per class."""


def _copied(decks: Decks) -> Decks:
    """An independent copy; dealing replaces a deck's lists and never changes them, so these can be shared."""
    rng, classes, images = decks
    return copy.deepcopy(rng), copy.copy(classes), [copy.copy(deck) for deck in images]


class ClassBalanced(BatchSampler):
    """P classes × K images: every class before any repeats, also across epochs, and never twice in one batch.

    Inside a class, every image before any repeats; a class with fewer than K images gives them all and then repeats.
    A batch lists its images class by class. Processes get whole classes, so P must be a multiple of `world_size`.

    Args:
        labels: (N,) class of every row.
        classes: P, over all processes; K = 1 and a large P suit proxy losses.
        per_class: K.
        steps: batches of an epoch; by default as many as show N images.
    """

    def __init__(
        self,
        labels: Tensor,
        classes: int = 8,
        per_class: int = 4,
        steps: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(seed, rank, world_size)
        self.rows = rows_of_classes(labels)
        if not 1 <= classes <= len(self.rows):
            raise InputError(f"a batch needs between 1 and {len(self.rows)} classes (all there are), got {classes}")
        if per_class < 1 or (steps is not None and steps < 1):
            raise InputError(f"per_class and steps must be at least 1, got {per_class} and {steps}")
        if classes % world_size:
            raise InputError(f"{classes} classes of a batch cannot be shared by {world_size} processes: use a multiple")
        self.classes, self.per_class = classes, per_class
        self.steps = steps or math.ceil(len(labels) / self.batch_size)
        self._saved = (0, self._decks())

    @property
    def batch_size(self) -> int:
        """P · K."""
        return self.classes * self.per_class

    def __len__(self) -> int:
        return self.steps

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """One endless deal, of which epoch e takes batches e·steps … (e+1)·steps − 1."""
        decks = self._decks_at(epoch * self.steps)
        for _ in range(start):
            self._deal(decks)
        for _ in range(self.steps - start):
            yield self._deal(decks)

    def _decks(self) -> Decks:
        return default_rng(self.seed), Deck(range(len(self.rows))), [Deck(rows) for rows in self.rows]

    def _deal(self, decks: Decks) -> list[int]:
        rng, classes, images = decks
        return [row for c in classes.deal(self.classes, rng) for row in images[c].deal(self.per_class, rng)]

    def _decks_at(self, batch: int) -> Decks:
        """The decks just before a batch: dealt on from the last epoch asked for, or from the beginning."""
        position, decks = self._saved
        if position > batch:
            position, decks = 0, self._decks()
        decks = _copied(decks)
        for _ in range(batch - position):
            self._deal(decks)
        self._saved = batch, _copied(decks)
        return decks


class EachClass(BatchSampler):
    """Every class once, `per_class` random images of it: the pool from which class proxies are chosen."""

    def __init__(
        self,
        labels: Tensor,
        per_class: int = 1,
        batch_size: int = 128,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(seed, rank, world_size)
        if per_class < 1 or batch_size < 1:
            raise InputError(f"per_class and batch_size must be at least 1, got {per_class} and {batch_size}")
        self.rows, self.per_class, self._size = rows_of_classes(labels), per_class, batch_size

    @property
    def batch_size(self) -> int:
        """As given."""
        return self._size

    def __len__(self) -> int:
        return math.ceil(len(self.rows) * self.per_class / self._size)

    def batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        """Class after class."""
        rng = default_rng((self.seed, epoch))
        rows = [row for members in self.rows for row in Deck(members).deal(self.per_class, rng)]
        return islice(chunks(rows, self._size), start, None)


def rows_of_classes(labels: Tensor) -> list[list[int]]:
    """Rows of each class, classes in ascending order of label."""
    if labels.dim() != 1 or len(labels) == 0:
        raise InputError(f"labels must be one number per image and not empty, got shape {tuple(labels.shape)}")
    order = torch.argsort(labels, stable=True)
    _, counts = torch.unique_consecutive(labels[order], return_counts=True)
    return [part.tolist() for part in np.split(order.numpy(), counts.cumsum(0)[:-1].numpy())]
