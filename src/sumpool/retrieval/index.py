"""A searchable collection of embeddings with a record (path, label, …) for each."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from sumpool.errors import InputError
from sumpool.retrieval import approximate, storage
from sumpool.retrieval.arrays import Embeddings, checked, norms, take
from sumpool.retrieval.comparison import Comparison, Distance, Gallery, presented
from sumpool.retrieval.expansion import expand_queries
from sumpool.retrieval.nearest import nearest
from sumpool.retrieval.reranking import rerank
from sumpool.retrieval.threshold import match_threshold

Record = dict[str, Any]
WIDER = 4  # candidates taken from an approximate structure per wanted hit, before exact scoring
SHORTLIST = 100  # hits that re-ranking looks at


class Hits(NamedTuple):
    """Neighbours of Q queries, nearest first."""

    items: Tensor
    """(Q,k) positions in the index; -1 where an approximate search found fewer."""
    scores: Tensor
    """(Q,k) float64: cosines, or negative distances."""


class Index:
    """Embeddings (N,D) and N records, found again by similarity.

    `model` is the fingerprint of the model that made the embeddings: searching with another one's is refused.
    `backend` is "exact", "hnsw" or "ivfpq" (FAISS, approximate candidates that are then scored exactly).

    >>> index = Index(torch.eye(3), [{"path": "a"}, {"path": "b"}, {"path": "c"}])
    >>> hits = index.search(torch.tensor([[0.0, 1.0, 0.1]]), k=2)
    >>> [index.records[item]["path"] for item in hits.items[0]]
    ['b', 'c']
    """

    def __init__(
        self,
        embeddings: Embeddings,
        records: Sequence[Record],
        *,
        model: str = "",
        distance: Distance = "cosine",
        backend: str = "exact",
        about: Record | None = None,
    ) -> None:
        self.model, self.distance, self.backend, self.about = model, distance, backend, dict(about or {})
        self.embeddings = checked(embeddings, "embeddings")
        self.records = list(records)
        _one_record_each(self.embeddings, self.records)
        approximate.require(backend, len(self.records))
        norms(self.embeddings, "embeddings")
        self._gallery: Gallery | None = None
        self._structure: Any = None

    def __len__(self) -> int:
        return len(self.records)

    def add(self, embeddings: Embeddings, records: Sequence[Record]) -> None:
        """Append; an HNSW graph or inverted file grows, nothing is built anew."""
        embeddings = checked(embeddings, "embeddings")
        _one_record_each(embeddings, records)
        if embeddings.shape[1] != self.embeddings.shape[1]:
            raise InputError(f"the index holds {self.embeddings.shape[1]} dimensions, got {embeddings.shape[1]}")
        norms(embeddings, "embeddings")
        if self._structure is not None:
            self._structure.add(self._points(embeddings).numpy())
        self.embeddings = torch.cat([_tensor(self.embeddings), _tensor(embeddings)])
        self.records += records
        self._gallery = None

    def remove(self, items: Iterable[int]) -> None:
        """Delete by position; later items move up. An approximate structure is built anew at the next search."""
        keep = torch.ones(len(self), dtype=torch.bool)
        for item in items:
            if not 0 <= item < len(self):
                raise InputError(f"the index has items 0 to {len(self) - 1}, got {item}")
            keep[item] = False
        if not bool(keep.any()):
            raise InputError("an index cannot become empty: delete its folder instead")
        self.embeddings = _tensor(self.embeddings)[keep]
        self.records = [record for record, kept in zip(self.records, keep.tolist(), strict=True) if kept]
        self._gallery = self._structure = None

    def search(
        self,
        queries: Embeddings,
        k: int = 10,
        *,
        model: str | None = None,
        expand: int = 0,
        alpha: float = 3.0,
        rerank: bool = False,
        memory_mb: float = 256,
    ) -> Hits:
        """The k nearest items of every query, ties by the lowest position.

        `expand` first replaces a query by the α-weighted mean of itself and so many neighbours; `rerank` orders the
        nearest 100 by k-reciprocal neighbours (scores stay cosines). `model` is checked against the index's.
        `memory_mb` bounds the working memory of exact search.
        """
        self.check_model(model)
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        if expand < 0:
            raise InputError(f"expand must be a number of neighbours, or 0 for none, got {expand}")
        queries = checked(queries, "queries")
        if expand:
            queries = self._expanded(queries, expand, alpha, memory_mb)
        hits = self._nearest(queries, max(k, SHORTLIST) if rerank else k, memory_mb)
        return self._reranked(queries, hits, k) if rerank else hits

    def check_model(self, model: str | None) -> None:
        """Refuse a model other than the one that made the embeddings."""
        if model is not None and model != self.model:
            raise InputError(
                f"the index was made by model {self.model[:12] or '(none)'} and the query by {model[:12]}: "
                "their embeddings cannot be compared; use that model or index the images again"
            )

    def threshold(self, false_match_rate: float) -> float:
        """The score from which on hits are matches, calibrated on the index's own labelled images."""
        labelled = [item for item, record in enumerate(self.records) if record.get("label") is not None]
        labels = [str(self.records[item]["label"]) for item in labelled]
        if len(set(labels)) < 2:
            raise InputError("a threshold needs records with at least two labels: index folders named by class")
        return match_threshold(take(self.embeddings, torch.tensor(labelled)), labels, false_match_rate, self.distance)

    def save(self, folder: str | Path, half: bool = False) -> None:
        """Write the folder, atomically; `half` stores float16, which doubles what fits on the disk."""
        embeddings = _stored(self.embeddings, half)
        if self.backend != "exact":
            self._built()
        settings = {"model": self.model, "distance": self.distance, "backend": self.backend, "about": self.about}
        structure = None if self._structure is None else approximate.serialise(self._structure)
        storage.write_folder(Path(folder), settings, embeddings, self.records, structure)

    @classmethod
    def load(cls, folder: str | Path, model: str | None = None) -> "Index":
        """Open a folder; with `model`, refuse an index made by another one."""
        settings, embeddings, records, structure = storage.read_folder(Path(folder))
        index = cls(embeddings, records, **settings)
        index.check_model(model)
        if structure is not None:
            index._structure = approximate.deserialise(structure, len(index))
        return index

    def _nearest(self, queries: Embeddings, k: int, memory_mb: float) -> Hits:
        if self._gallery is None:
            self._gallery = Gallery(self.embeddings, self.distance)
        comparison = Comparison(queries, self._gallery)
        if self.backend == "exact":
            pieces = nearest(comparison, k, torch.arange(len(queries)), int(memory_mb * 2**20))
            at, found = (torch.cat(parts) for parts in zip(*pieces, strict=True))
            items = found[at.argsort()]
        else:
            wide = min(WIDER * k, len(self))
            items = torch.from_numpy(approximate.shortlist(self._built(), self._points(queries), wide))
        return self._scored(comparison, items, k)

    def _scored(self, comparison: Comparison, items: Tensor, k: int) -> Hits:
        """Exact scores, highest first, ties by the lowest position; a missing item scores minus infinity."""
        items = items.sort(dim=1).values
        query = torch.arange(len(items))[:, None].expand_as(items)
        scores = torch.full(items.shape, -torch.inf, dtype=torch.float64)
        found = items >= 0
        scores[found] = presented(comparison.exact(query[found], items[found]), self.distance == "cosine")
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        return Hits(items.gather(1, order)[:, :k], scores[:, :k])

    def _expanded(self, queries: Embeddings, count: int, alpha: float, memory_mb: float) -> Tensor:
        if self.distance != "cosine":
            raise InputError("query expansion is defined for cosines: make the index with distance='cosine'")
        items = self._nearest(queries, count, memory_mb).items
        neighbours = take(self.embeddings, items.clamp(min=0).flatten()).view(*items.shape, -1)
        neighbours[items < 0] = 0  # what an approximate search did not find has no weight
        return expand_queries(_tensor(queries), neighbours, alpha)

    def _reranked(self, queries: Embeddings, hits: Hits, k: int) -> Hits:
        points = self._points(queries)
        rows = []
        for query, items in zip(points, hits.items, strict=True):
            found = items[items >= 0]
            distances = rerank(query, self._points(take(self.embeddings, found)))
            rows.append(torch.nn.functional.pad(distances, (0, len(items) - len(found)), value=torch.inf))
        order = torch.stack(rows).argsort(dim=1, stable=True)[:, :k]
        return Hits(hits.items.gather(1, order), hits.scores.gather(1, order))

    def _points(self, embeddings: Embeddings) -> Tensor:
        points = _tensor(embeddings)
        return normalize(points) if self.distance == "cosine" else points

    def _built(self) -> Any:
        if self._structure is None:
            self._structure = approximate.build(self.backend, self._points(self.embeddings), self.distance == "cosine")
        return self._structure


def _one_record_each(embeddings: Embeddings, records: Sequence[Record]) -> None:
    if len(records) != len(embeddings):
        raise InputError(f"one record per embedding expected, got {len(records)} for {len(embeddings)}")


def _tensor(embeddings: Embeddings) -> Tensor:
    return embeddings.float() if isinstance(embeddings, Tensor) else torch.from_numpy(np.array(embeddings, np.float32))


def _stored(embeddings: Embeddings, half: bool) -> np.ndarray[Any, Any]:
    """Embeddings in the type of a file, without a copy where they have it already."""
    if isinstance(embeddings, Tensor):  # NumPy has no bfloat16
        embeddings = (embeddings.float() if embeddings.dtype == torch.bfloat16 else embeddings).numpy()
    kind = np.float16 if half else np.float32
    with np.errstate(over="ignore"):
        stored = embeddings.astype(kind, copy=False)
    if not np.isfinite([stored.min(), stored.max()]).all():
        raise InputError(
            f"embeddings must be within ±{np.finfo(kind).max:.3g} to be stored as {kind.__name__}, "
            f"got {embeddings.min():.3g} to {embeddings.max():.3g}: scale them{', or save without half' * half}"
        )
    return stored
