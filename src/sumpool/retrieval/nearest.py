"""Exact nearest neighbours: the float32 product proposes a superset of the k nearest, the float64 score orders it.

Ties are broken by the lowest index. Used by the metrics when a query has many positives, and by the index.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from sumpool.retrieval.comparison import Comparison, full_precision
from sumpool.retrieval.copies import Copies, first_copies

ROWS = 256  # queries at a time: more do not make the product faster, fewer keep it in the cache
MANY = 16  # how much more a pair costs alone than in a product
GROUPS = 4  # item groups per wanted neighbour in the bound on the k-th score
LAST = 2**32 - 1


@torch.no_grad()
def nearest(comparison: Comparison, k: int, query: Tensor, memory: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Successive pieces of the neighbours of the queries `query`, nearest first, with their places in it.

    A query does not see itself when the queries are the gallery; k is cut to what the gallery has. `memory` bounds
    the working memory in bytes.
    """
    copies, alone = comparison.gallery.copies, comparison.among_themselves
    k = min(k, len(comparison.columns) - alone)
    # Worst case per score: itself and, where everything ties, a mask, two indices and a sorted float64 copy.
    size = max(1, min(len(query), memory // (48 * len(comparison.columns)), ROWS))
    if copies is None:
        order, columns = torch.arange(len(query)), comparison.columns
    else:  # equal queries side by side, and one item for all its copies
        first = copies.first if alone else first_copies(comparison.queries, comparison.norms)
        order, columns = first[query].argsort(), comparison.columns[copies.distinct]
    buffer = torch.empty(size, len(columns), dtype=torch.float32)
    for start in range(0, len(query), size):
        at = order[start : start + size]
        piece = query[at]
        if copies is None:
            scores = _product(comparison, piece, columns, buffer)
            if alone:
                scores[torch.arange(len(piece)), piece] = -torch.inf
            values, items = _candidates(scores, k, comparison.tolerance)
            yield at, _settled(comparison, piece, values, items)[0][:, :k]
        else:
            own, row = first[piece].unique(return_inverse=True)
            ranking = _ranked(comparison, copies, k + alone, own, _product(comparison, own, columns, buffer))[row]
            yield at, _without(piece, ranking) if alone else ranking


def _product(comparison: Comparison, query: Tensor, columns: Tensor, buffer: Tensor) -> Tensor:
    with full_precision():
        return torch.mm(comparison.rows[query], columns.T, out=buffer[: len(query)])


def _ranked(comparison: Comparison, copies: Copies, k: int, query: Tensor, scores: Tensor) -> Tensor:
    """The k nearest items, a query itself among them, from the scores of the distinct ones."""
    groups = min(k, scores.shape[1])  # enough even if each is one item: of tied groups, the first begins first
    values, group = _candidates(scores, groups, comparison.tolerance)
    items, tied = _settled(comparison, query, values, copies.distinct[group])
    return copies.ranked(items[:, :groups], tied[:, :groups], k)


def _without(query: Tensor, ranking: Tensor) -> Tensor:
    """Each ranking without its query, or without its last item if the query is not in it."""
    keep = ranking != query[:, None]
    keep[keep.all(1), -1] = False
    return ranking[keep].view(len(query), -1)


def _candidates(scores: Tensor, k: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Scores and items, highest first, of all that may be among the k nearest; padded with minus infinity.

    The k-th highest of the maxima of disjoint groups of items is a lower bound on the k-th highest score; a true
    member of the k nearest can be below that bound by the error of both scores at most.
    """
    count, width = scores.shape
    groups = GROUPS * k
    if k == 0 or 2 * groups > width:
        return _sorted(scores, torch.arange(width).expand(count, width))
    depth = width // groups
    # Groups are strided, so that the maximum runs along the memory.
    tops = scores[:, : depth * groups].view(count, depth, groups).amax(1)
    bound = np.sort(tops.numpy(), axis=1)[:, -k, None] - np.float32(2 * tolerance)
    hits = torch.from_numpy(np.flatnonzero(scores.numpy() >= bound))
    row = hits.div(width, rounding_mode="floor")
    filled = torch.bincount(row, minlength=count)
    place = torch.arange(len(hits)) - (filled.cumsum(0) - filled)[row]
    values = torch.full((count, int(filled.max())), -torch.inf, dtype=torch.float32)
    items = torch.zeros(values.shape, dtype=torch.int64)
    values[row, place] = scores.view(-1)[hits]
    items[row, place] = hits - row * width
    return _sorted(values, items)


def _sorted(values: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Rows by descending value, ties by ascending item.

    Value and item are packed into one integer, because sorting plain integers is many times faster than sorting with
    a permutation: the bits of a float, with all but the sign flipped for negative ones, are ordered like the float.
    """
    bits = values.view(torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long().bitwise_left_shift_(32).add_(LAST - items)
    keys.numpy().sort(axis=1)
    keys = keys.flip(1)
    bits = (keys >> 32).int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32), LAST - (keys & LAST)


def _settled(comparison: Comparison, query: Tensor, values: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    """Put runs of items whose float32 scores are too close to tell apart into float64 order, ties by ascending item.

    Where most are (crowded embeddings of thousands of dimensions), a float64 product leaves but a few to compare one by
    one. Also tells which items tie with the one before.
    """
    row, place, run = _close(values, comparison.tolerance)
    if len(row) * MANY > len(query) * len(comparison.columns):
        fine = comparison.fine(query).gather(1, items).masked_fill_(values == -torch.inf, -torch.inf)
        sorting = torch.from_numpy(np.lexsort((items.numpy(), -fine.numpy()), axis=1))
        values, items = fine.gather(1, sorting), items.gather(1, sorting)
        row, place, run = _close(values, comparison.fine_tolerance)
    item = items[row, place]
    exact = comparison.exact(query[row], item)
    order = torch.from_numpy(np.lexsort((item.numpy(), -exact.numpy(), run.numpy())))
    items[row, place], exact = item[order], exact[order]
    tied = torch.zeros(items.shape, dtype=torch.bool)
    tied[row[1:], place[1:]] = (exact[1:] == exact[:-1]) & (run[1:] == run[:-1])
    return items, tied


def _close(values: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Row and place of all values that are too close to a neighbour in their row, and the run each belongs to."""
    close = values[:, :-1] - values[:, 1:] <= 2 * tolerance
    pad = close.new_zeros(len(close), 1)
    follows = torch.cat([pad, close], 1)
    row, place = (follows | torch.cat([close, pad], 1)).nonzero(as_tuple=True)
    return row, place, (~follows[row, place]).cumsum(0)
