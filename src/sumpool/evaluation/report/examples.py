"""Retrieval examples: queries, where the model looks in them, and the images it finds."""

import io
from collections.abc import Sequence
from html import escape

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.data import CentreCrop, Dataset
from sumpool.embedder import Embedder
from sumpool.explain import explain
from sumpool.retrieval import Index
from sumpool.retrieval.comparison import Distance
from sumpool.retrieval.sheet import heat
from sumpool.training.page import image

SIDE = 96  # pixels of a thumbnail; as JPEG about 3 kB


def example_rows(dataset: Dataset, count: int) -> list[int]:
    """Rows of queries at equal distances through the dataset: nobody picked them."""
    queries = [row for row, record in enumerate(dataset.records) if record.role != "gallery"]
    return [queries[round(place)] for place in np.linspace(0, len(queries) - 1, min(count, len(queries)))]


def examples(
    embedder: Embedder,
    dataset: Dataset,
    vectors: Tensor,
    rows: Sequence[int],
    k: int = 6,
    distance: Distance = "cosine",
) -> str:
    """HTML of some queries, each with its weight map and its k nearest images, right ones and wrong ones marked.

    Args:
        embedder: the model.
        dataset: images to search for and in.
        vectors: (N,D) its embedding of every image of the dataset.
        rows: which images are the queries.
        k: how many neighbours to show.
        distance: what ranks them.
    """
    found = neighbours(dataset, vectors, rows, k, distance)
    return "\n".join(_example(embedder, dataset, row, hits) for row, hits in zip(rows, found, strict=True))


def neighbours(
    dataset: Dataset, vectors: Tensor, rows: Sequence[int], k: int, distance: Distance = "cosine"
) -> list[list[tuple[int, float]]]:
    """Rows and similarities of the k nearest images of each query; where every image is both, without itself."""
    gallery = torch.tensor([row for row, record in enumerate(dataset.records) if record.role != "query"])
    index = Index(vectors[gallery], [{}] * len(gallery), distance=distance)
    hits = index.search(vectors[torch.tensor(rows)], k + 1)
    pairs = zip(rows, gallery[hits.items].tolist(), hits.scores.tolist(), strict=True)
    return [
        [(item, score) for item, score in zip(items, scores, strict=True) if item != row][:k]
        for row, items, scores in pairs
    ]


def _example(embedder: Embedder, dataset: Dataset, row: int, hits: Sequence[tuple[int, float]]) -> str:
    seen = explain(embedder, dataset.image(row))
    # Without weights, what a place adds to the embedding is shown; places that take away stay dark.
    values, title = (seen.shares.clamp(min=0), "shares") if seen.weights is None else (seen.weights, "weights")
    picture, name = seen.image.convert("RGB"), _name(dataset, row)
    tiles = [
        _tile(picture, f"query: {name}", "query"),
        _tile(heat(picture, values), title, "query"),
        *(_hit(embedder, dataset, row, item, score) for item, score in hits),
    ]
    return f'<div class="example">{"".join(tiles)}</div>'


def _hit(embedder: Embedder, dataset: Dataset, row: int, item: int, score: float) -> str:
    right = bool(dataset.labels[row] == dataset.labels[item])
    crop = CentreCrop(embedder.backbone.preprocessing)
    picture = crop.pixels(dataset.image(item), np.random.default_rng(0))
    mark = "✓" if right else "✗"
    return _tile(picture, f"{mark} {_name(dataset, item)} {score:.2f}", "right" if right else "wrong")


def _name(dataset: Dataset, row: int) -> str:
    return str(dataset.classes[int(dataset.labels[row])])


def _tile(picture: Image.Image, caption: str, kind: str) -> str:
    thumbnail, file = picture.convert("RGB").resize((SIDE, SIDE)), io.BytesIO()
    thumbnail.save(file, "JPEG", quality=80)
    shown = image(file.getvalue(), caption)
    return f'<figure class="{kind}">{shown}<figcaption>{escape(caption)}</figcaption></figure>'
