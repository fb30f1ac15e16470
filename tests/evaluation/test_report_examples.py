"""Retrieval examples show the nearest images, right and wrong, and where the model looks."""

import re
from base64 import b64decode
from io import BytesIO

import pytest
import torch
from PIL import Image

from sumpool.backbones import create_backbone
from sumpool.data import CentreCrop, Dataset, load_dataset
from sumpool.embedder import Embedder
from sumpool.evaluation.report import example_rows, examples
from sumpool.evaluation.report.examples import neighbours
from sumpool.pooling import create_pooling
from sumpool.training.evaluate import embed_dataset


@pytest.fixture(scope="module")
def glyphs() -> Dataset:
    return load_dataset("glyphs", per_class=3, classes=15).split("test")


def roles(dataset: Dataset, names: list[str]) -> Dataset:
    """The first images of a set, with roles."""
    records = [record._replace(role=role) for record, role in zip(dataset.records, names, strict=False)]
    return dataset.with_records(records)


def test_queries_are_spread_over_the_set(glyphs: Dataset) -> None:
    assert example_rows(glyphs, 3) == [0, round((len(glyphs) - 1) / 2), len(glyphs) - 1]
    assert example_rows(roles(glyphs, ["gallery", "query", "both"]), 5) == [1, 2]


def test_neighbours_are_the_nearest_others(glyphs: Dataset) -> None:
    vectors = torch.randn(len(glyphs), 4, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(vectors)
    (found,) = neighbours(glyphs, vectors, [5], 4)
    order = [row for row in (unit @ unit[5]).argsort(descending=True).tolist() if row != 5][:4]
    assert [row for row, _ in found] == order
    assert found[0][1] == pytest.approx(float(unit[order[0]] @ unit[5]), abs=1e-5)
    (found,) = neighbours(glyphs, vectors, [5], 4, "euclidean")
    distances = (vectors - vectors[5]).norm(dim=1)
    assert [row for row, _ in found] == [row for row in distances.argsort().tolist() if row != 5][:4]


def test_queries_are_searched_in_the_gallery_only(glyphs: Dataset) -> None:
    part = roles(glyphs, ["query", "query", "gallery", "gallery"])
    (found,) = neighbours(part, torch.eye(4), [0], 3)
    assert sorted(row for row, _ in found) == [2, 3]


@pytest.mark.parametrize(("pooling", "map_title"), [("gsp", "weights"), ("gmp", "shares")])
def test_right_and_wrong_are_marked_by_more_than_colour(glyphs: Dataset, pooling: str, map_title: str) -> None:
    torch.manual_seed(0)
    backbone = create_backbone("tiny")
    embedder = Embedder(backbone, create_pooling(pooling, backbone.out_features, 8)).eval()
    vectors, _ = embed_dataset(embedder, glyphs.transformed(CentreCrop(backbone.preprocessing)))
    rows = example_rows(glyphs, 2)
    html = examples(embedder, glyphs, vectors, rows, k=4)
    tiles = re.findall(r'<figure class="(.*?)"><img src="data:image/jpeg;base64,(.*?)" alt="(.*?)">', html)
    kinds = [[(kind, alt) for kind, _, alt in tiles[start : start + 6]] for start in (0, 6)]
    for row, found, (query, weights, *shown) in zip(rows, neighbours(glyphs, vectors, rows, 4), kinds, strict=True):
        assert query == ("query", f"query: {glyphs.classes[glyphs.labels[row]]}")
        assert weights == ("query", map_title)
        right = [bool(glyphs.labels[item] == glyphs.labels[row]) for item, _ in found]
        assert [kind for kind, _ in shown] == ["right" if one else "wrong" for one in right]
        assert [alt[0] for _, alt in shown] == ["✓" if one else "✗" for one in right]
    pictures = [Image.open(BytesIO(b64decode(data))) for _, data, _ in tiles]
    assert {picture.size for picture in pictures} == {(96, 96)}
    assert len(html) < 100_000
