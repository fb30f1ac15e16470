"""Retrieval metrics, exact at the speed of a matrix product."""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval.arrays import Embeddings, Labels, Members, encode
from sumpool.retrieval.clustering import cluster_agreement
from sumpool.retrieval.comparison import Comparison, Distance, Gallery
from sumpool.retrieval.counting import positive_ranks
from sumpool.retrieval.nearest import nearest
from sumpool.retrieval.scores import CLUSTERING, Score, find_score

DEFAULT_METRICS = ("p@1", "p@r", "map@r", "r@1", "r@2", "r@4", "r@8")
# Up to so many positives are counted, more are selected. When all classes are alike, counting wins up to about 6
# positives (128-D) or 20 (512-D); 12 keeps a set like SOP, with 2 to 12 images per class, on half of the product.
FEW = 12


class Metrics(dict[str, float]):
    """Name → mean over the queries that have a positive; also the values behind the means.

    `per_query` (name → (Q,) float64, NaN for a query without a positive) is what intervals and paired tests need;
    `without_positive` counts the queries that are in no mean; `labels` are the queries' labels as integers from 0.
    """

    def __init__(self, per_query: dict[str, Tensor], labels: Tensor, positives: Tensor) -> None:
        super().__init__({name: float(values.nanmean()) for name, values in per_query.items()})
        self.per_query = per_query
        self.labels = labels
        self.without_positive = int((positives == 0).sum())

    def per_class(self) -> dict[str, Tensor]:
        """Name → mean of every class, (C,), in ascending order of the labels; NaN where no query has a positive."""
        classes, code = self.labels.unique(return_inverse=True)
        means = {}
        for name, values in self.per_query.items():
            valid = ~values.isnan()
            total = torch.zeros(len(classes), dtype=torch.float64).index_add_(0, code[valid], values[valid])
            means[name] = total / torch.bincount(code[valid], minlength=len(classes))
        return means


@torch.no_grad()
def retrieval_metrics(
    queries: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    distance: Distance = "cosine",
    memory_mb: float = 256,
) -> Metrics:
    """Rank the gallery for every query and score where the items with the query's label are.

    Without a gallery the queries are ranked among themselves, each without itself. Embeddings are tensors or arrays
    (N,D), also memory-mapped, in any floating-point type; labels are numbers or texts, one per embedding. The scores
    are those of `sumpool.retrieval.scores` and, on request, `nmi` and `ami` of a k-means clustering of the queries.
    Ties are broken by the lowest index. Beyond the embeddings and a float32 copy, the working memory is `memory_mb` for
    queries with many positives; those with up to `FEW` are counted in tiles of a fixed size, some 150 MB at most.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.2]])
    >>> result = retrieval_metrics(x, [0, 0, 1, 1], metrics=["p@1", "map@r", "r@3"])
    >>> dict(result), result.without_positive
    ({'p@1': 0.75, 'map@r': 0.75, 'r@3': 1.0}, 0)
    """
    ranked = {name: find_score(name) for name in metrics if name not in CLUSTERING}
    if gallery is None:
        comparison = Comparison(None, Gallery(queries, distance, "queries"))
    else:
        comparison = Comparison(queries, Gallery(gallery, distance))
    codes = _codes(queries, labels, gallery, gallery_labels)
    members = Members(codes[-1], classes=1 + max(int(code.max()) for code in codes))
    positives = members.count[codes[0]] - int(comparison.among_themselves)
    per_query = {name: torch.full((len(positives),), torch.nan, dtype=torch.float64) for name in ranked}
    limits = _limits(ranked.values(), positives)
    for query, ranks in _ranks(comparison, codes, members, positives, limits, int(memory_mb * 2**20)):
        for name, score in ranked.items():
            per_query[name][query] = score.of(ranks, positives[query].double())
    result = Metrics(per_query, codes[0], positives)
    if clustering := [name for name in metrics if name in CLUSTERING]:
        result.update(cluster_agreement(comparison.queries, codes[0], distance == "cosine", clustering))
    return result


def _limits(scores: Collection[Score], positives: Tensor) -> Tensor:
    """Ranks (Q,2) up to which the first and the other positives of every query need to be known."""
    every = [positives.double() if score.every is None else torch.full((), score.every).double() for score in scores]
    others = torch.stack([limit.expand(len(positives)) for limit in [torch.zeros(()).double(), *every]]).amax(0)
    first = others.clamp(min=max((score.first for score in scores), default=0))
    return torch.stack([first, others], 1)


def _ranks(
    comparison: Comparison, codes: list[Tensor], members: Members, positives: Tensor, limits: Tensor, memory: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Queries and the ascending ranks of their positives; ranks beyond the limits may be infinite.

    Queries with few positives are counted, unless the gallery is full of copies; the others get their nearest
    neighbours; the ranks are the same.
    """
    alone = comparison.among_themselves
    few = ((positives > 0) & (positives <= FEW)).nonzero().squeeze(1)
    many = (positives > FEW).nonzero().squeeze(1)
    selected = [few, many]
    if comparison.gallery.copies is None and len(few):
        yield few, positive_ranks(comparison, few, members.of(few, codes[0], alone), limits[few])
        selected = [many]
    for queries in selected:
        k = int(limits[queries].max().clamp(max=len(comparison.columns))) if len(queries) else 0
        for at, neighbours in nearest(comparison, k, queries, memory):
            query = queries[at]
            hit = codes[-1][neighbours] == codes[0][query][:, None]
            rank = torch.arange(1, neighbours.shape[1] + 1).double().where(hit, torch.inf)
            yield query, rank.sort(1).values[:, : int(positives[query].max())]


def _codes(
    queries: Embeddings, labels: Labels, gallery: Embeddings | None, gallery_labels: Labels | None
) -> list[Tensor]:
    if (gallery is None) != (gallery_labels is None):
        raise InputError("gallery and gallery_labels must be given together")
    codes = encode(labels) if gallery_labels is None else encode(labels, gallery_labels)
    for embeddings, code, name in zip([queries, gallery], codes, ["queries", "gallery"], strict=False):
        if embeddings is not None and len(code) != len(embeddings):
            raise InputError(f"{name}: one label per embedding expected, got {len(code)} for {len(embeddings)}")
    return codes
