r"""How two embeddings are compared: a float32 product that is fast, and a float64 score that decides.

Ranking needs only the order of the scores of one query. Every path of this package takes the float32 product of two
operand matrices, whose error is bounded by

.. math:: |\mathrm{fl}(a^\top b) - a^\top b| \le (K + 2)\, u\, \sum_k |a_k b_k|, \qquad u = 2^{-24},

in any order of summation (Higham 2002, §3.1; 2 for the rounding of a and b), and asks the float64 score of the
original embeddings about the pairs closer than that. Ranks are therefore those of the float64 scores, whatever the
BLAS, the chunk or the thread count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval.arrays import BLOCK, Embeddings, blocks, checked, norms, take
from sumpool.retrieval.copies import Copies, first_copies

Distance = Literal["cosine", "euclidean"]
CONCENTRATED = 0.5  # squared length of the mean unit vector above which cosines are better taken around the mean
COPIED = 2  # average number of equal embeddings above which they are ranked together


class Gallery:
    """Embeddings prepared to be compared with: scores are cosines, or half the negative squared distances.

    Cosines of embeddings that crowd around their mean (an untrained network) would nearly all be within the
    tolerance of one another: those are taken as distances of unit vectors, which rank the same. Distances are taken
    around the mean, scaled so that the farthest embedding is at 1.
    """

    def __init__(self, embeddings: Embeddings, distance: Distance = "cosine", name: str = "gallery") -> None:
        if distance not in get_args(Distance):
            raise InputError(f"distance must be one of {', '.join(get_args(Distance))}, got {distance!r}")
        self.embeddings = checked(embeddings, name)
        self.norms = norms(self.embeddings, name)
        self.cosine = distance == "cosine"
        placed = (self._placed(block, self.norms[at]) for at, block in blocks(self.embeddings))
        self.centre = torch.stack([block.sum(0) for block in placed]).sum(0) / len(self.embeddings)
        self.plain = self.cosine and float(self.centre.square().sum()) < CONCENTRATED
        self.scale = 1.0 if self.plain else self.reach(self.embeddings, self.norms) or 1.0
        self.columns = self.operand(self.embeddings, self.norms, side=1)

    @cached_property
    def copies(self) -> Copies | None:
        """The groups of equal embeddings, if there are so many that they should be ranked together."""
        copies = Copies(first_copies(self.embeddings, self.norms))
        return copies if copies.average > COPIED else None

    def _placed(self, block: Tensor, lengths: Tensor) -> Tensor:
        return block / lengths.where(lengths > 0, 1)[:, None] if self.cosine else block

    def reach(self, embeddings: Embeddings, lengths: Tensor) -> float:
        """Distance of the farthest embedding from the mean."""
        gaps = (self._placed(block, lengths[at]) - self.centre for at, block in blocks(embeddings))
        return max(float(torch.linalg.vector_norm(gap, dim=1).max()) for gap in gaps)

    def operand(self, embeddings: Embeddings, lengths: Tensor, side: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows (side 0) or columns (side 1) of the product: unit vectors, or such that it is -‖q-g‖²/2."""
        count, dim = embeddings.shape
        operand = torch.ones(count, dim if self.plain else dim + 2, dtype=dtype)
        for at, block in blocks(embeddings):
            block = self._placed(block, lengths[at])
            if not self.plain:
                block = (block - self.centre) / self.scale
                operand[at, dim + side] = block.square().sum(1).to(dtype) / -2
            operand[at, :dim] = block.to(dtype)
        return operand


class Comparison:
    """Scores between queries and a gallery, larger is nearer; without queries, of the gallery among itself.

    `rows[i] @ columns[j]` is a float32 score of query i and gallery item j, at most `tolerance` away from
    `to_product(exact(i, j))`.
    """

    def __init__(self, queries: Embeddings | None, gallery: Gallery) -> None:
        self.gallery, self.columns = gallery, gallery.columns
        self.among_themselves = queries is None
        self.queries = gallery.embeddings if queries is None else checked(queries, "queries")
        if self.queries.shape[1] != gallery.embeddings.shape[1]:
            raise InputError(
                f"queries have {self.queries.shape[1]} dimensions and the gallery {gallery.embeddings.shape[1]}"
            )
        self.norms = gallery.norms if queries is None else norms(self.queries, "queries")
        shared = queries is None and gallery.plain
        self.rows = self.columns if shared else gallery.operand(self.queries, self.norms, side=0)
        self.tolerance = self._tolerance(2.0**-24)
        self.fine_tolerance = self._tolerance(2.0**-51)  # the error of the exact score included

    def _tolerance(self, unit: float) -> float:
        """Bound on the error of a product: (K + 8) u Σ|a_k b_k|, with 6 to spare for thresholds rounded to float32."""
        gallery, terms = self.gallery, self.rows.shape[1] + 8
        if gallery.plain:
            return terms * unit
        reach = gallery.reach(self.queries, self.norms) / gallery.scale
        # Far from the origin the exact score and the shift to the mean have errors too, those of float64.
        origin = 1.0 if gallery.cosine else float(torch.maximum(self.norms.max(), gallery.norms.max()))
        return terms * (unit * (1 + reach) ** 2 / 2 + 2.0**-51 * (origin / gallery.scale) ** 2)

    def fine(self, query: Tensor) -> Tensor:
        """The product for some queries in float64, at most `fine_tolerance` away, not bit-equal for equal items."""
        rows = self.gallery.operand(take(self.queries, query), self.norms[query], 0, torch.float64)
        product = torch.empty(len(query), len(self.columns), dtype=torch.float64)
        for start in range(0, len(self.columns), BLOCK):
            at = slice(start, start + BLOCK)
            columns = self.gallery.operand(self.gallery.embeddings[at], self.gallery.norms[at], 1, torch.float64)
            torch.mm(rows, columns.T, out=product[:, at])
        return product

    def exact(self, query: Tensor, item: Tensor) -> Tensor:
        """The float64 scores of the pairs (query[n], item[n]); equal embeddings get bit-equal scores."""
        scores = torch.empty(len(query), dtype=torch.float64)
        for at in range(0, len(query), BLOCK):
            i, j = query[at : at + BLOCK], item[at : at + BLOCK]
            q, g = take(self.queries, i), take(self.gallery.embeddings, j)
            if self.gallery.cosine:
                # Dividing the product, not the vectors, keeps ties of binary and integer codes exact.
                length = self.norms[i] * self.gallery.norms[j]
                scores[at : at + BLOCK] = q.mul_(g).sum(1) / length.where(length > 0, 1)
            else:
                scores[at : at + BLOCK] = q.sub_(g).square_().sum(1) / -2
        return scores

    def to_product(self, exact: Tensor) -> Tensor:
        """What the product of the operands gives for these exact scores."""
        return exact if self.gallery.plain else (exact - float(self.gallery.cosine)) / self.gallery.scale**2

    def from_product(self, product: Tensor) -> Tensor:
        """The scores of a search that such products stand for: cosines, or negative distances."""
        score = product if self.gallery.plain else product * self.gallery.scale**2 + float(self.gallery.cosine)
        return presented(score, self.gallery.cosine)


def presented(score: Tensor, cosine: bool) -> Tensor:
    """Scores as people read them: cosines as they are, half negative squared distances as negative distances."""
    return score if cosine else -(-2 * score).clamp(min=0).sqrt()


@contextmanager
def full_precision() -> Iterator[None]:
    """No bfloat16 or TF32 shortcuts in float32 products: the error bound above would not hold."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
