r"""Ranks of the positives without sorting: count the gallery items that score higher.

The rank of a positive p of query q is :math:`1 + |\{j : s_{qj} > s_{qp}\}| + |\{j < p : s_{qj} = s_{qp}\}|`. A tile of
the product is reduced to the maxima of short segments while it is in the cache, and only the segments that reach a
positive's score are looked at. A positive that has fallen behind the rank of interest is not followed any further,
so that few segments are, even for poor embeddings. The tiles of one set against itself serve both of their sides:
half of the product is enough.
"""

import torch
from torch import Tensor

from sumpool.retrieval.comparison import Comparison, full_precision

TILE = 1024  # queries and gallery items of a tile: 4 MB of scores
SEGMENT = 64  # scores behind one maximum
BATCH = 16384  # segments looked at together


@torch.no_grad()
def positive_ranks(comparison: Comparison, query: Tensor, positives: Tensor, limits: Tensor) -> Tensor:
    """Ranks (n,P), ascending, of the `positives` (n,P) of the queries `query` (n,) in the whole gallery.

    A missing positive is -1 and its rank infinite, as may be a rank beyond `limits` (n,2), of which one is for the
    first positive and one for the others. A query does not see itself when the queries are the gallery.
    """
    count = _Count(comparison, query, positives, limits)
    half = comparison.among_themselves and len(query) == len(comparison.queries)
    rows, columns = comparison.rows[query], comparison.columns
    tile = torch.empty(TILE, TILE, dtype=torch.float32)
    with full_precision():
        for top in range(0, len(rows), TILE):
            for left in range(top if half else 0, len(columns), TILE):
                a, b = rows[top : top + TILE], columns[left : left + TILE]
                if len(a) < TILE or len(b) < TILE:
                    tile.fill_(-torch.inf)
                torch.mm(a, b.T, out=tile[: len(a), : len(b)])
                count.hide_self(tile, top, left)
                segments = tile.unflatten(1, (-1, SEGMENT))
                count.add(segments, segments.amax(2), top, left)
                if half and left != top:
                    segments = tile.unflatten(0, (-1, SEGMENT))
                    count.add(segments.permute(2, 0, 1), segments.amax(1).T, left, top)
    return count.ranks()


class _Count:
    """How many gallery items were seen to score above each positive."""

    def __init__(self, comparison: Comparison, query: Tensor, positives: Tensor, limits: Tensor) -> None:
        self.comparison, self.query = comparison, query
        self.limits = torch.cat([limits[:, :1], limits[:, 1:].expand(-1, positives.shape[1] - 1)], 1)
        there = positives >= 0
        score = torch.full(positives.shape, -torch.inf, dtype=torch.float64)
        score[there] = comparison.exact(query[:, None].expand_as(positives)[there], positives[there])
        # Highest first, so that the ranks come out ascending; positives are listed by index, so ties keep that order.
        self.score, order = score.sort(dim=1, descending=True, stable=True)
        self.positive = positives.gather(1, order)
        self.above = torch.zeros(positives.shape, dtype=torch.int64)
        # Scores from `low` to `high` are unclear. Rows are padded to whole tiles; nothing reaches an infinite `low`.
        self.low = torch.full((-len(query) // TILE * -TILE, positives.shape[1]), torch.inf, dtype=torch.float32)
        product = comparison.to_product(self.score).where(self.positive >= 0, torch.inf)
        self.low[: len(query)] = product - comparison.tolerance
        self.high = (product + comparison.tolerance).float()

    def hide_self(self, tile: Tensor, top: int, left: int) -> None:
        """A query that is in this tile's part of the gallery gets the score minus infinity."""
        if self.comparison.among_themselves:
            own = self.query[top : top + TILE] - left
            row = ((own >= 0) & (own < TILE)).nonzero().squeeze(1)
            tile[row, own[row]] = -torch.inf

    def add(self, segments: Tensor, highest: Tensor, top: int, left: int) -> None:
        """Count a tile (query, segment, score) with maxima (query, segment), from query `top` and item `left` on."""
        low = self.low[top : top + TILE]
        rows = (highest.amax(1) >= low.amin(1)).nonzero().squeeze(1)
        reached = (highest[rows, None] >= low[rows, :, None]).nonzero()
        for place, nth, segment in (batch.unbind(1) for batch in reached.split(BATCH)):
            row = rows[place]
            self._compare(segments[row, segment], top + row, nth, left + SEGMENT * segment)
        behind = self.above[top : top + TILE] >= self.limits[top : top + TILE]
        low[: len(behind)][behind] = torch.inf

    def _compare(self, scores: Tensor, row: Tensor, nth: Tensor, first: Tensor) -> None:
        """Count segments: `scores` (n,SEGMENT) of query row[n] and the items from first[n] on, for its nth positive."""
        above = scores > self.high[row, nth, None]
        place = row * self.above.shape[1] + nth
        self.above.view(-1).index_add_(0, place, above.sum(1))
        pair, column = (above ^ (scores >= self.low[row, nth, None])).nonzero(as_tuple=True)
        row, nth, place, item = row[pair], nth[pair], place[pair], first[pair] + column
        other = item != self.positive[row, nth]
        row, nth, place, item = row[other], nth[other], place[other], item[other]
        score, threshold = self.comparison.exact(self.query[row], item), self.score[row, nth]
        ahead = (score > threshold) | ((score == threshold) & (item < self.positive[row, nth]))
        self.above.view(-1).index_add_(0, place, ahead.long())

    def ranks(self) -> Tensor:
        """The ranks, once every tile was counted."""
        followed = self.low[: len(self.above)] < torch.inf
        return (self.above + 1).double().where(followed, torch.inf)
