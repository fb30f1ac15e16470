r"""How two embeddings are compared: a float32 product that is fast, and a float64 score that decides.

Ranking needs only the order of the scores of one query. Every path of this package takes the float32 product of two
operand matrices, whose error is bounded by

.. math:: |\mathrm{fl}(a^\top b) - a^\top b| \le (K + 2)\, u\, \sum_k |a_k b_k|, \qquad u = 2^{-24},

in any order of summation (Higham 2002, §3.1; 2 for the rounding of a and b), and asks the float64 score of the original embeddings about the pairs
closer than that. Ranks are therefore those of the float64 scores, whatever the BLAS, the chunk or the thread count.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sumpool.errors import InputError

Embeddings = Tensor | np.ndarray[Any, Any]
Labels = Tensor | np.ndarray[Any, Any] | Sequence[Any]
Distance = Literal["cosine", "euclidean"]
BLOCK = 4096  # embeddings, or pairs of them, held in float64 at a time
CONCENTRATED = 0.5  # squared length of the mean unit vector above which cosines are better taken around the mean


class Comparison:
    """Scores between queries and a gallery, larger is nearer: cosine, or half the negative squared distance.

    `rows[i] @ columns[j]` is a float32 score of query i and gallery item j, at most `tolerance` away from
    `to_product(exact(i, j))`. Cosines of embeddings that crowd around their mean (an untrained network) would nearly all be
    within the tolerance of one another: those are taken as distances of unit vectors, around the mean, which rank
    the same. Distances are scaled so that the farthest point from the mean is at 1.
    """

    def __init__(self, queries: Embeddings, gallery: Embeddings | None = None, distance: Distance = "cosine") -> None:
        if distance not in ("cosine", "euclidean"):
            raise InputError(f"distance must be 'cosine' or 'euclidean', got {distance!r}")
        self.among_themselves = gallery is None
        self.cosine = distance == "cosine"
        self.queries = checked(queries, "queries")
        self.gallery = self.queries if gallery is None else checked(gallery, "gallery")
        if self.queries.shape[1] != self.gallery.shape[1]:
            raise InputError(f"queries have {self.queries.shape[1]} dimensions and the gallery {self.gallery.shape[1]}")
        self.query_norms = norms(self.queries, "queries")
        self.gallery_norms = self.query_norms if gallery is None else norms(self.gallery, "gallery")
        self.centre = self._mean()
        if self.cosine and float(self.centre.square().sum()) < CONCENTRATED:
            self.scale = 1.0
            self.rows = self._fill(self.queries, self.query_norms, None)
            self.columns = self.rows if gallery is None else self._fill(self.gallery, self.gallery_norms, None)
            self.shift, size = 0.0, 1.0
        else:
            self.scale = self._farthest()
            self.rows = self._fill(self.queries, self.query_norms, 0)
            self.columns = self._fill(self.gallery, self.gallery_norms, 1)
            self.shift, size = float(self.cosine), 2.0
        terms = self.rows.shape[1] + 8  # 2 for the operands, the others for rounding thresholds to float32
        self.tolerance = terms * (2.0**-24 * size + 2.0**-53 * 4 / self.scale**2)

    def exact(self, query: Tensor, item: Tensor) -> Tensor:
        """The float64 scores of the pairs (query[n], item[n]); equal embeddings get bit-equal scores."""
        scores = torch.empty(len(query), dtype=torch.float64)
        for at in range(0, len(query), BLOCK):
            i, j = query[at : at + BLOCK], item[at : at + BLOCK]
            q, g = take(self.queries, i), take(self.gallery, j)
            if self.cosine:
                # Dividing the product, not the vectors, keeps ties of binary and integer codes exact.
                length = self.query_norms[i] * self.gallery_norms[j]
                scores[at : at + BLOCK] = q.mul_(g).sum(1) / length.where(length > 0, 1)
            else:
                scores[at : at + BLOCK] = q.sub_(g).square_().sum(1) / -2
        return scores

    def to_product(self, exact: Tensor) -> Tensor:
        """What the product of the operands gives for these exact scores."""
        return (exact - self.shift) / self.scale**2

    def _mean(self) -> Tensor:
        total = torch.zeros(self.gallery.shape[1], dtype=torch.float64)
        for at, block in blocks(self.gallery):
            total += self._scaled(block, self.gallery_norms[at]).sum(0)
        return total / len(self.gallery)

    def _farthest(self) -> float:
        largest = 0.0
        sides = [(self.queries, self.query_norms), (self.gallery, self.gallery_norms)]
        for embeddings, length in sides[self.among_themselves :]:
            for at, block in blocks(embeddings):
                gap = self._scaled(block, length[at]) - self.centre
                largest = max(largest, float(torch.linalg.vector_norm(gap, dim=1).max()))
        return largest or 1.0

    def _scaled(self, block: Tensor, length: Tensor) -> Tensor:
        return block / length.where(length > 0, 1)[:, None] if self.cosine else block

    def _fill(self, embeddings: Embeddings, length: Tensor, side: int | None) -> Tensor:
        """Operands of the product; `side` 0 and 1 are the rows and columns whose product is -‖q-g‖²/2."""
        count, dim = embeddings.shape
        operand = torch.empty(count, dim if side is None else dim + 2)
        for at, block in blocks(embeddings):
            block = self._scaled(block, length[at])
            if side is None:
                operand[at] = block.float()
                continue
            block = (block - self.centre) / self.scale
            operand[at, :dim] = block.float()
            operand[at, dim + side] = block.square().sum(1).float() / -2
            operand[at, dim + 1 - side] = 1
        return operand


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
    """Labels of any kind as integers that agree between the lists."""
    arrays = [label.detach().cpu().numpy() if isinstance(label, Tensor) else np.asarray(label) for label in labels]
    if any(array.ndim != 1 for array in arrays):
        raise InputError(f"labels must be one per embedding, got shapes {[array.shape for array in arrays]}")
    codes = np.unique(np.concatenate(arrays), return_inverse=True)[1]
    return [torch.from_numpy(part) for part in np.split(codes, np.cumsum([len(array) for array in arrays])[:-1])]


@contextmanager
def full_precision() -> Iterator[None]:
    """No bfloat16 or TF32 shortcuts in float32 products: the error bound above would not hold."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
