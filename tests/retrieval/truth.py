"""Slow, obvious versions and inputs that break metrics in practice."""

import numpy as np
import torch
from torch import Tensor


def scores_by_loop(queries: Tensor, gallery: Tensor, distance: str) -> np.ndarray:
    """Float64 scores of every pair, one pair at a time."""
    q, g = queries.double().numpy(), gallery.double().numpy()
    out = np.empty((len(q), len(g)))
    for i, a in enumerate(q):
        for j, b in enumerate(g):
            if distance == "euclidean":
                out[i, j] = -((a - b) ** 2).sum()
            else:
                length = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
                out[i, j] = (a * b).sum() / length if length else 0.0
    return out


def ranking_by_loop(scores: np.ndarray, own: bool) -> list[list[int]]:
    """Gallery items from best to worst, ties by the lowest index, without the query itself if `own`."""
    return [
        sorted((j for j in range(scores.shape[1]) if not (own and j == i)), key=lambda j: (-scores[i, j], j))
        for i in range(len(scores))
    ]


def metrics_by_loop(ranking: list[list[int]], labels: list[int], gallery_labels: list[int]) -> dict[str, float]:
    """The definitions, written out."""
    rows = []
    for i, order in enumerate(ranking):
        correct = [gallery_labels[j] == labels[i] for j in order]
        total = sum(correct)
        if total == 0:
            continue
        first = correct.index(True) + 1
        precision = [sum(correct[: at + 1]) / (at + 1) if correct[at] else 0.0 for at in range(len(correct))]
        row = {"p@1": float(correct[0]), "p@r": sum(correct[:total]) / total, "map@r": sum(precision[:total]) / total}
        row |= {"map": sum(precision) / total, "mrr": 1 / first} | {f"r@{k}": float(first <= k) for k in (1, 3, 30)}
        rows.append(row)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


ALL = ("p@1", "p@r", "map@r", "map", "mrr", "r@1", "r@3", "r@30")


def random_embeddings(count: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def tied(count: int) -> Tensor:
    """Binary codes, whose cosines and distances tie everywhere."""
    return (random_embeddings(count, 5) > 0).float() * 2 - 1


# name → (embeddings, labels): what breaks metrics in practice
CASES: dict[str, tuple[Tensor, list[int]]] = {
    "random": (random_embeddings(60, 8), [i % 12 for i in range(60)]),
    "many per class": (random_embeddings(90, 8), [i % 3 for i in range(90)]),
    "uneven classes": (random_embeddings(80, 4), [min(i, 20) for i in range(80)]),
    "tied": (tied(70), [i % 14 for i in range(70)]),
    "tied, many per class": (tied(70), [i % 2 for i in range(70)]),
    "integers": (random_embeddings(50, 3).mul(2).round() + 3, [i // 5 for i in range(50)]),
    "duplicates": (random_embeddings(7, 6).repeat(8, 1), [i % 9 for i in range(56)]),
    "collapsed": (torch.ones(40, 6), [i % 4 for i in range(40)]),
    "zero vectors": (torch.cat([torch.zeros(15, 4), random_embeddings(15, 4)]), [i % 5 for i in range(30)]),
    "one class": (random_embeddings(30, 5), [0] * 30),
    "singletons": (random_embeddings(10, 5), [*range(8), 1, 1]),
    "crowded": (1 + 1e-6 * random_embeddings(60, 16), [i % 12 for i in range(60)]),
    "far from zero": (1e4 + random_embeddings(60, 16), [i % 4 for i in range(60)]),
    "tiny": (1e-25 * random_embeddings(40, 8), [i % 8 for i in range(40)]),
    "huge": (1e25 * random_embeddings(40, 8), [i % 8 for i in range(40)]),
    "wide": (random_embeddings(40, 300), [i % 8 for i in range(40)]),
    "one dimension": (random_embeddings(40, 1), [i % 8 for i in range(40)]),
}


def query_and_gallery(case: str) -> tuple[Tensor, list[int], Tensor, list[int]]:
    """A case's embeddings and labels, mixed and divided 2 : 3."""
    embeddings, labels = CASES[case]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(5)).tolist()
    query, gallery = order[: 2 * len(order) // 5], order[2 * len(order) // 5 :]
    return embeddings[query], [labels[i] for i in query], embeddings[gallery], [labels[i] for i in gallery]
