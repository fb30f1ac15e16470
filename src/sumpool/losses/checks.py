"""The border of the losses: labels of any kind become integers, and bad input is named.

Shape letters: B rows of the batch, D dimensions.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from sumpool.errors import InputError


def as_labels(labels: Any, device: torch.device | str | None = None) -> Tensor:
    """Labels as an integer tensor: integers stay what they are, a string becomes its 63-bit hash.

    The hash needs no list of classes and is the same in every process and every run, so that a memory of past batches
    stays valid; the chance that two among a million class names collide is 5e-8.

    >>> as_labels([3, 0, 3])
    tensor([3, 0, 3])
    >>> sparrow, gull, other = as_labels(["sparrow", "gull", "sparrow"]).tolist()
    >>> sparrow == other != gull
    True
    """
    if not isinstance(labels, Tensor):
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise InputError(f"labels must be a list of integers or strings, got {labels!r}")
        labels = list(labels)
        if labels and all(isinstance(label, str) for label in labels):
            labels = [_hash(label) for label in labels]
        try:
            labels = torch.as_tensor(labels, dtype=None if labels else torch.long)
        except (TypeError, ValueError, RuntimeError):
            raise InputError("labels must be all integers or all strings, got a mixture or something else") from None
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must be a list of integers or strings, got {labels.dtype} {tuple(labels.shape)}")
    negative = labels < 0
    if bool(negative.any()):
        row = int(negative.nonzero()[0])
        raise InputError(f"labels must not be negative, row {row} has {int(labels[row])}")
    integers: Tensor = labels.to(device=device, dtype=torch.long)
    return integers


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def checked(embeddings_BD: Tensor, labels: Any, name: str = "embeddings") -> tuple[Tensor, Tensor]:
    """Embeddings in at least single precision and integer labels, one per row; anything else is refused."""
    if not isinstance(embeddings_BD, Tensor):
        raise InputError(f"{name} must be a tensor, got {type(embeddings_BD).__name__}: convert with torch.as_tensor")
    if embeddings_BD.dim() != 2 or not embeddings_BD.is_floating_point():
        raise InputError(f"{name} must be a float matrix (B,D), got {embeddings_BD.dtype} {tuple(embeddings_BD.shape)}")
    labels_B = as_labels(labels, embeddings_BD.device)
    if len(labels_B) != len(embeddings_BD):
        raise InputError(
            f"expected one label per row of {name}, got {len(labels_B)} labels for {len(embeddings_BD)} rows"
        )
    if not math.isfinite(embeddings_BD.detach().sum().item()):  # one pass; a sum that overflows is looked into as well
        rows = (~embeddings_BD.isfinite().all(1)).nonzero().flatten().tolist()
        if rows:
            raise InputError(f"{name} hold NaN or infinity in {len(rows)} of {len(labels_B)} rows, first row {rows[0]}")
    if embeddings_BD.dtype in (torch.float16, torch.bfloat16):
        embeddings_BD = embeddings_BD.float()
    return embeddings_BD, labels_B


class Classes:
    """The training classes: a number C (labels 0 … C−1), or the list of their labels, integers or strings.

    >>> Classes(["gull", "sparrow"]).index(["sparrow", "gull"])
    tensor([1, 0])
    >>> Classes(3).index([1, 3])
    Traceback (most recent call last):
    ...
    sumpool.errors.InputError: label 3 of row 1 is not among the 3 classes
    """

    def __init__(self, classes: int | Sequence[int] | Sequence[str]) -> None:
        self.keys: Tensor | None = None
        if isinstance(classes, Integral):
            self.count = int(classes)
        else:
            self.keys, self.order = as_labels(classes).sort()
            self.count = len(self.keys)
            if bool((self.keys.diff() == 0).any()):
                raise InputError(f"the list of {self.count} classes names a class twice")
        if self.count < 1:
            raise InputError("there must be at least one class, got none")

    def index(self, labels: Any) -> Tensor:
        """The position 0 … C−1 of every label in the list of classes."""
        labels_B = as_labels(labels)
        if self.keys is None:
            found_B, known_B = labels_B, labels_B < self.count
        else:
            self.keys, self.order = self.keys.to(labels_B.device), self.order.to(labels_B.device)
            place_B = torch.searchsorted(self.keys, labels_B).clamp_(max=self.count - 1)
            found_B, known_B = self.order[place_B], self.keys[place_B] == labels_B
        if not bool(known_B.all()):
            row = int((~known_B).nonzero()[0])
            name = int(labels[row]) if isinstance(labels, Tensor) else repr(labels[row])
            raise InputError(f"label {name} of row {row} is not among the {self.count} classes")
        return found_B


def setting(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within [low, high], or an error that names it."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
    if not low <= value <= high:
        limits = f"at least {low}" if high == math.inf else f"between {low} and {high}"
        raise InputError(f"{name} must be {limits}, got {value}")
    return value


def whole(name: str, value: float, low: float = -math.inf) -> int:
    """A whole number not below `low`, or an error that names it."""
    if setting(name, value, low) != int(value):
        raise InputError(f"{name} must be a whole number, got {value}")
    return int(value)


def above_zero(name: str, value: float) -> float:
    """A positive number, or an error that names it."""
    if not setting(name, value) > 0:
        raise InputError(f"{name} must be positive, got {value}")
    return value
