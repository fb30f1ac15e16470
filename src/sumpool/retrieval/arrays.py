"""Embeddings as tensors or arrays, also mapped from disk: checked, and read in blocks of float64."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.errors import InputError

Embeddings = Tensor | np.ndarray[Any, Any]
Labels = Tensor | np.ndarray[Any, Any] | Sequence[Any]
BLOCK = 1024  # embeddings, or pairs of them, held in float64 at a time: what fits the cache
NUMBERS = "biuf"  # NumPy's kinds


def checked(embeddings: Embeddings, name: str) -> Embeddings:
    """A matrix of at least one floating-point embedding, in main memory or mapped from disk."""
    if isinstance(embeddings, Tensor):
        embeddings = embeddings.detach().cpu()
        floating = embeddings.is_floating_point()
    else:
        floating = np.issubdtype(embeddings.dtype, np.floating)
    if embeddings.ndim != 2 or not floating or 0 in embeddings.shape:
        raise InputError(
            f"{name} must be a non-empty matrix of floating-point embeddings (N,D), "
            f"got {embeddings.dtype} with shape {tuple(embeddings.shape)}"
        )
    return embeddings


def norms(embeddings: Embeddings, name: str) -> Tensor:
    """Lengths in float64, (N,); an embedding that is not finite is an error."""
    lengths = torch.cat([torch.linalg.vector_norm(block, dim=1) for _, block in blocks(embeddings)])
    if not bool(lengths.isfinite().all()):
        bad = (~lengths.isfinite()).nonzero()
        raise InputError(
            f"{name} must be finite, got NaN or infinity in {len(bad)} of {len(lengths)} embeddings, "
            f"the first at row {int(bad[0])}"
        )
    return lengths


def take(embeddings: Embeddings, index: Tensor) -> Tensor:
    """The embeddings at `index`, a fresh float64 tensor."""
    if isinstance(embeddings, Tensor):
        return embeddings[index].double()
    return torch.from_numpy(embeddings[index.numpy()].astype(np.float64))


def blocks(embeddings: Embeddings) -> Iterator[tuple[slice, Tensor]]:
    """Successive blocks of rows in float64, with their places."""
    for start in range(0, len(embeddings), BLOCK):
        at = slice(start, min(start + BLOCK, len(embeddings)))
        part = embeddings[at]
        yield at, part.double() if isinstance(part, Tensor) else torch.from_numpy(np.array(part, dtype=np.float64))


def encode(*labels: Labels) -> list[Tensor]:
    """Labels, numbers or texts, as integers from 0, in ascending order of the labels, that agree between the lists."""
    arrays = [_label_array(label) for label in labels]
    if any(array.ndim != 1 for array in arrays):
        raise InputError(f"labels must be one per embedding, got shapes {[array.shape for array in arrays]}")
    if len({array.dtype.kind in NUMBERS for array in arrays}) > 1:
        raise InputError("labels of queries and gallery must be of one kind, got numbers and texts: none would match")
    codes = np.unique(np.concatenate(arrays), return_inverse=True)[1]
    return [torch.from_numpy(part) for part in np.split(codes, np.cumsum([len(array) for array in arrays])[:-1])]


def _label_array(labels: Labels) -> np.ndarray[Any, Any]:
    """Labels as an array, if all are numbers or all are texts; NumPy would make a text of a missing or other one."""
    try:
        array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        if array.dtype == object:
            labels = array.tolist()
            array = np.asarray(labels)
    except ValueError as ragged:
        raise InputError("labels must be one number or text per embedding, got lists of several lengths") from ragged
    kind = array.dtype.kind
    if (
        kind not in NUMBERS + "US"
        or (kind == "f" and np.isnan(array).any())
        or (kind == "U" and not all(isinstance(label, str) for label in labels))
    ):
        raise InputError("labels must be all numbers or all texts, got NaN, None or a mixture: give each embedding one")
    return array


class Members:
    """The items of every class, by ascending index."""

    def __init__(self, codes: Tensor, classes: int) -> None:
        self.order = codes.argsort(stable=True)
        self.count = torch.bincount(codes, minlength=classes)
        self.start = self.count.cumsum(0) - self.count

    def of(self, query: Tensor, codes: Tensor, drop_self: bool) -> Tensor:
        """The positives (n,P) of the queries by ascending index, -1 where there are no more."""
        code = codes[query]
        place = torch.arange(int(self.count[code].max()))
        there = place < self.count[code][:, None]
        member = self.order[(self.start[code][:, None] + place).where(there, 0)].where(there, -1)
        return member.where(member != query[:, None], -1) if drop_self else member
