"""From which score on two images may be called a match, at a given rate of false matches."""

import torch

from sumpool.errors import InputError
from sumpool.retrieval.arrays import Embeddings, Labels, encode
from sumpool.retrieval.comparison import Comparison, Distance, Gallery, full_precision

BINS = 2**16
TILE = 1024


@torch.no_grad()
def match_threshold(
    embeddings: Embeddings, labels: Labels, false_match_rate: float, distance: Distance = "cosine"
) -> float:
    """The lowest score at which at most `false_match_rate` of the pairs with different labels would match.

    All pairs are counted, in a histogram of 65,536 bins; the threshold is the edge of a bin, on the safe side. It is
    a cosine, or a negative distance, like the scores of a search.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> round(match_threshold(x, ["a", "b", "c"], 0.5), 3)  # cosines 0.6, 0.8 and 0: one of three pairs may match
    0.6
    """
    if not 0 <= false_match_rate <= 1:
        raise InputError(f"false_match_rate must be between 0 and 1, got {false_match_rate}")
    codes = encode(labels)[0]
    if len(codes) != len(embeddings):
        raise InputError(f"one label per embedding expected, got {len(codes)} for {len(embeddings)}")
    if len(codes.unique()) < 2:
        raise InputError("a threshold needs images of at least two labels: false matches are pairs of different ones")
    comparison = Comparison(None, Gallery(embeddings, distance, "embeddings"))
    low, high = (-1.001, 1.001) if comparison.gallery.plain else (-2.001, 0.001)
    counts = torch.zeros(BINS, dtype=torch.int64)
    with full_precision():
        for top in range(0, len(codes), TILE):
            for left in range(top, len(codes), TILE):
                rows, columns = slice(top, top + TILE), slice(left, left + TILE)
                scores = comparison.rows[rows] @ comparison.columns[columns].T
                other = codes[rows, None] != codes[columns]
                if left == top:
                    other.triu_()
                bins = (scores[other] - low) * (BINS / (high - low))
                counts += torch.bincount(bins.long().clamp_(0, BINS - 1), minlength=BINS)
    matches = counts.flip(0).cumsum(0).flip(0)  # pairs in this bin or above
    allowed = false_match_rate * int(counts.sum())
    edge = int((matches > allowed).sum())  # the first bin whose lower edge lets few enough through
    product = low + edge * (high - low) / BINS + comparison.tolerance
    return float(comparison.from_product(torch.tensor(product, dtype=torch.float64)))
