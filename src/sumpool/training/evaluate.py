"""Embed a dataset and score it."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from sumpool.data import Dataset, InOrder, Loader
from sumpool.data.progress import counted
from sumpool.embedder import Embedder
from sumpool.retrieval import Metrics, retrieval_metrics
from sumpool.retrieval.comparison import Distance
from sumpool.retrieval.scores import CLUSTERING, find_score


def embed_dataset(
    embedder: Embedder, dataset: Dataset, batch_size: int = 128, workers: int = 0, bad: str = "raise"
) -> tuple[Tensor, Tensor]:
    """Embeddings (N,D) and rows (N,) of a dataset with a transform, shared among the processes if there are several."""
    rank, count = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    sampler = InOrder(len(dataset), batch_size, rank, count)
    loader = Loader(dataset, sampler, workers, bad="skip" if bad == "skip" else "raise")
    vectors, rows = [torch.empty(0, embedder.dim)], [torch.empty(0, dtype=torch.long)]
    for batch in counted(loader, len(loader), f"embedding {dataset.name}"):
        vectors.append(embedder.embed(batch.images))
        rows.append(batch.indices)
    found = torch.cat(vectors), torch.cat(rows)
    return found if count == 1 else _everyone(*found)


def _everyone(vectors: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """All processes' rows, in the order of the dataset."""
    parts: list[tuple[Tensor, Tensor]] = [(vectors, rows)] * dist.get_world_size()
    dist.all_gather_object(parts, (vectors, rows))
    order = torch.cat([part[1] for part in parts]).argsort()
    return torch.cat([part[0] for part in parts])[order], torch.cat([part[1] for part in parts])[order]


def require_metrics(names: Iterable[str]) -> None:
    """Refuse a misspelt metric before images are embedded for it."""
    for name in names:
        if name not in CLUSTERING:
            find_score(name)


def score_dataset(
    embedder: Embedder, dataset: Dataset, metrics: tuple[str, ...], distance: Distance = "cosine", **loading: object
) -> Metrics:
    """Retrieval metrics of a dataset; its queries against its gallery where it has both."""
    vectors, rows = embed_dataset(embedder, dataset, **loading)  # type: ignore[arg-type]
    labels = dataset.labels[rows]
    if not dataset.has_roles:
        return retrieval_metrics(vectors, labels, metrics=metrics, distance=distance)
    roles = [dataset.records[int(row)].role for row in rows]
    query = torch.tensor([role != "gallery" for role in roles])
    gallery = torch.tensor([role != "query" for role in roles])
    parts = vectors[query], labels[query], vectors[gallery], labels[gallery]
    return retrieval_metrics(*parts, metrics=metrics, distance=distance)
