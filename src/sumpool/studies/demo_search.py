"""The demo's search: an index of images of classes that no training has seen, and three more images as queries."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sumpool.data import Dataset
from sumpool.embedder import Embedder
from sumpool.evaluation.report.examples import example_rows
from sumpool.explain import explain
from sumpool.retrieval import Index
from sumpool.retrieval.sheet import Tile, contact_sheet

QUERIES, NEIGHBOURS = 3, 5


class Answer(NamedTuple):
    """A query with its class, and the class and the similarity of the nearest images."""

    query: Path
    label: str
    found: list[tuple[str, float]]


@dataclass(frozen=True)
class Search:
    """What was found, and where the search can be repeated."""

    answers: list[Answer]
    index: Path
    sheet: Path


def search(model: Path, vectors: Tensor, test: Dataset, out: Path) -> Search:
    """Search all test images but three, whose embeddings are known, for those three; write what `sumpool search` needs.

    Images are numbered by class, because some file systems take a letter and its capital for the same name.
    """
    rows = example_rows(test, QUERIES)
    rest = [row for row in range(len(test)) if row not in rows]
    queries = [written(test, row, out / "queries") for row in rows]
    images = [written(test, row, out / "images") for row in rest]
    records = [
        {"path": path.relative_to(out / "images").as_posix(), "label": label(test, row)}
        for row, path in zip(rest, images, strict=True)
    ]
    embedder = Embedder.load(model)
    about = {"folder": str((out / "images").resolve()), "model": str(model.resolve())}
    index = Index(vectors[rest], records, model=embedder.fingerprint(), about=about)
    index.save(out / "index")
    hits = index.search(embedder.embed_files(queries, progress=False), NEIGHBOURS, model=embedder.fingerprint())
    answers, tiles = [], []
    for row, query, items, scores in zip(rows, queries, hits.items.tolist(), hits.scores.tolist(), strict=True):
        found = [(str(records[item]["label"]), score) for item, score in zip(items, scores, strict=True)]
        answers.append(Answer(query, label(test, row), found))
        tiles.append(tile(embedder, query, "query"))
        tiles += [
            tile(embedder, images[item], f"{'the same letter' if name == label(test, row) else 'another'}, {score:.2f}")
            for item, (name, score) in zip(items, found, strict=True)
        ]
    contact_sheet(tiles, columns=1 + NEIGHBOURS).save(out / "search.png")
    return Search(answers, out / "index", out / "search.png")


def written(dataset: Dataset, row: int, folder: Path) -> Path:
    """The file of an image, in the folder of its class."""
    path = folder / f"{int(dataset.labels[row]):03d}" / f"{row:05d}.png"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        dataset.image(row).convert("L").save(path)
    return path


def label(dataset: Dataset, row: int) -> str:
    """The class of an image."""
    return str(dataset.classes[int(dataset.labels[row])])


def tile(embedder: Embedder, path: Path, caption: str) -> Tile:
    """A picture of the contact sheet: what the model saw of an image, and where it looked."""
    seen = explain(embedder, path)
    return Tile(seen.image, seen.weights, [caption])
