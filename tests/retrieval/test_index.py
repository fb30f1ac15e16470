"""The index: exact search, FAISS, add and delete, expansion, re-ranking, thresholds."""

import sys

import numpy as np
import pytest
import torch

from sumpool.errors import InputError
from sumpool.retrieval import Index, approximate, match_threshold, nearest
from sumpool.retrieval.approximate import BACKENDS
from sumpool.retrieval.expansion import expand_queries
from sumpool.retrieval.reranking import rerank

from .truth import CASES, random_embeddings, ranking_by_loop, scores_by_loop


def make(count: int = 60, dim: int = 8, **settings: object) -> Index:
    records = [{"path": f"{i}.jpg", "label": f"class {i % 6}"} for i in range(count)]
    return Index(random_embeddings(count, dim), records, **settings)


@pytest.mark.parametrize("many", [0, 16, 10**9], ids=["pairs one by one", "by their number", "float64 product"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("case", CASES)
def test_exact_search_equals_the_double_loop(
    case: str, distance: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "MANY", many)
    embeddings = CASES[case][0]
    index = Index(embeddings, [{}] * len(embeddings), distance=distance)
    queries = embeddings[::3]
    hits = index.search(queries, k=7, memory_mb=0.01)
    scores = scores_by_loop(queries, embeddings, distance)
    assert hits.items.tolist() == [row[:7] for row in ranking_by_loop(scores, own=False)]
    readable = scores if distance == "cosine" else -np.sqrt(-scores)
    assert hits.scores.numpy() == pytest.approx(np.take_along_axis(readable, hits.items.numpy(), 1), rel=1e-9, abs=1e-9)


def test_more_wanted_than_there_are() -> None:
    hits = make(5).search(random_embeddings(2, 8), k=50)
    assert hits.items.sort(1).values.tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_backends_find_what_exact_search_finds(backend: str, distance: str) -> None:
    centres = random_embeddings(60, 16)
    x = centres.repeat(20, 1) + 0.1 * random_embeddings(1200, 16, seed=1)
    index = Index(x, [{}] * len(x), backend=backend, distance=distance)
    queries = centres[:30] + 0.1 * random_embeddings(30, 16, seed=2)
    truth = Index(x, [{}] * len(x), distance=distance).search(queries, k=5)
    hits = index.search(queries, k=5)
    found = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(hits.items.tolist(), truth.items.tolist(), strict=True)])
    assert found > 0.9
    assert (hits.scores.diff(dim=1) <= 0).all()
    same = hits.items == truth.items
    assert torch.equal(hits.scores[same], truth.scores[same])


@pytest.mark.parametrize("backend", ["exact", "hnsw"])
def test_add_and_remove(backend: str) -> None:
    index = make(backend=backend)
    x = torch.as_tensor(index.embeddings).clone()
    index.search(x[:1])
    more = random_embeddings(3, 8, seed=9)
    index.add(more, [{"path": f"new {i}"} for i in range(3)])
    assert len(index) == 63
    hits = index.search(more, k=1)
    assert [index.records[i]["path"] for i in hits.items[:, 0]] == ["new 0", "new 1", "new 2"]
    index.remove([0, 61])
    assert len(index) == 61
    paths = [index.records[i]["path"] for i in index.search(torch.cat([x[1:2], more[2:], x[:1]]), k=1).items[:, 0]]
    assert paths[:2] == ["1.jpg", "new 2"]
    assert paths[2] != "0.jpg"


def test_expansion_equals_its_formula() -> None:
    q, x = random_embeddings(2, 4).numpy(), random_embeddings(6, 4, seed=1).reshape(2, 3, 4).numpy()
    result = expand_queries(torch.from_numpy(q), torch.from_numpy(x), alpha=2.0)
    for i in range(2):
        unit = q[i] / np.linalg.norm(q[i])
        total = unit.copy()
        for neighbour in x[i]:
            other = neighbour / np.linalg.norm(neighbour)
            total += max(unit @ other, 0) ** 2 * other
        assert result[i].numpy() == pytest.approx(total / np.linalg.norm(total), abs=1e-6)


def test_expanded_search() -> None:
    index = make()
    query = random_embeddings(2, 8, seed=4)
    first = index.search(query, k=3).items
    expanded = expand_queries(query, torch.as_tensor(index.embeddings)[first], alpha=1.0)
    expected = index.search(expanded, k=9)
    assert torch.equal(index.search(query, k=9, expand=3, alpha=1.0).items, expected.items)
    with pytest.raises(InputError, match="cosine"):
        make(distance="euclidean").search(query, expand=3)
    with pytest.raises(InputError, match="alpha"):
        index.search(query, expand=3, alpha=-1)


def test_expansion_ignores_what_was_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    index = make(backend="hnsw")
    query = random_embeddings(1, 8, seed=4)
    found = index.search(query, k=2).items
    expanded = expand_queries(query, torch.as_tensor(index.embeddings)[found], alpha=0.0)
    expected = index.search(expanded, k=1)
    shortlist = approximate.shortlist
    first = iter([np.pad(found.numpy(), ((0, 0), (0, 3)), constant_values=-1)])
    monkeypatch.setattr(approximate, "shortlist", lambda *args: next(first, shortlist(*args)))
    assert torch.equal(index.search(query, k=1, expand=5, alpha=0.0).scores, expected.scores)


def rerank_by_sets(points: np.ndarray, k1: int, k2: int, weight: float) -> list[float]:
    """k-reciprocal re-ranking as the paper words it, with sets."""
    n = len(points)
    d = np.array([[((a - b) ** 2).sum() for b in points] for a in points])
    d /= d.max()
    near = [sorted(range(n), key=lambda j: (-1 if i == j else d[i, j], j)) for i in range(n)]

    def mutual(i: int, k: int) -> set[int]:
        return {j for j in near[i][: k + 1] if i in near[j][: k + 1]}

    vectors = np.zeros((n, n))
    for i in range(n):
        base = mutual(i, k1)
        members = set(base)
        for j in base:
            half = mutual(j, round(k1 / 2))
            if len(half & base) >= 2 / 3 * len(half):
                members |= half
        for j in members:
            vectors[i, j] = np.exp(-d[i, j])
        vectors[i] /= vectors[i].sum()
    smooth = np.stack([np.mean([vectors[j] for j in near[i][:k2]], axis=0) for i in range(n)])
    jaccard = [1 - np.minimum(smooth[0], smooth[i]).sum() / np.maximum(smooth[0], smooth[i]).sum() for i in range(1, n)]
    return [(1 - weight) * a + weight * b for a, b in zip(jaccard, d[0, 1:], strict=True)]


@pytest.mark.parametrize(("k1", "k2", "weight"), [(6, 3, 0.3), (20, 6, 0.0), (3, 1, 0.7), (50, 50, 0.3)])
def test_reranking_equals_sets(k1: int, k2: int, weight: float) -> None:
    points = random_embeddings(31, 4)
    result = rerank(points[0], points[1:], k1, k2, weight)
    assert result.numpy() == pytest.approx(rerank_by_sets(points.double().numpy(), k1, k2, weight))


def test_reranked_search_reorders_the_same_hits() -> None:
    index = make()
    hits = index.search(random_embeddings(3, 8, seed=5), k=60)
    again = index.search(random_embeddings(3, 8, seed=5), k=60, rerank=True)
    assert not torch.equal(hits.items, again.items)
    assert torch.equal(hits.items.sort(1).values, again.items.sort(1).values)
    for row in range(3):
        scores = dict(zip(hits.items[row].tolist(), hits.scores[row].tolist(), strict=True))
        assert [scores[item] for item in again.items[row].tolist()] == again.scores[row].tolist()


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.05, 0.5, 1.0])
def test_threshold_keeps_the_false_match_rate(rate: float, offset: float, distance: str) -> None:
    x, labels = random_embeddings(200, 6) + offset, [i % 7 for i in range(200)]
    threshold = match_threshold(x, labels, rate, distance)
    scores = scores_by_loop(x, x, distance)
    scores = scores if distance == "cosine" else -np.sqrt(-scores)
    different = np.array([scores[i, j] for i in range(200) for j in range(i) if labels[i] != labels[j]])
    assert (different >= threshold).mean() <= rate
    # No lower than needed: a threshold one bin lower would let too many through, or is below all pairs.
    span = scores.max() - scores.min()
    assert (different >= threshold - 3e-4 * span - 1e-7).mean() >= rate


def test_threshold_of_an_index() -> None:
    index = make()
    labels = [record["label"] for record in index.records]
    assert index.threshold(0.01) == match_threshold(index.embeddings, labels, 0.01)
    index.add(random_embeddings(1, 8, seed=7), [{"path": "unlabelled"}])
    assert index.threshold(0.01) == match_threshold(index.embeddings[:60], labels, 0.01)
    with pytest.raises(InputError, match="two labels"):
        Index(random_embeddings(3, 2), [{}] * 3).threshold(0.1)
    with pytest.raises(InputError, match="between 0 and 1"):
        index.threshold(1.5)


def test_another_model_is_refused() -> None:
    index = make(model="a" * 64)
    index.search(random_embeddings(1, 8), model="a" * 64)
    with pytest.raises(InputError, match="made by model aaaaaaaaaaaa and the query by bbbbbbbbbbbb"):
        index.search(random_embeddings(1, 8), model="b" * 64)


def test_bad_input_is_refused() -> None:
    index = make()
    for bad, message in {
        lambda: Index(random_embeddings(3, 2), [{}]): "one record per embedding expected, got 1 for 3",
        lambda: make(backend="annoy"): "backend must be one of exact, hnsw, ivfpq",
        lambda: index.search(random_embeddings(1, 5)): "5 dimensions and the gallery 8",
        lambda: index.search(random_embeddings(1, 8), k=0): "k must be at least 1",
        lambda: index.search(random_embeddings(1, 8), expand=-1): "expand must be a number of neighbours.* got -1",
        lambda: index.search(torch.full((1, 8), torch.nan)): "NaN",
        lambda: index.add(torch.full((1, 8), torch.nan), [{}]): "NaN",
        lambda: index.add(random_embeddings(1, 5), [{}]): "holds 8 dimensions, got 5",
        lambda: index.remove([60]): "items 0 to 59, got 60",
        lambda: index.remove(range(60)): "cannot become empty",
        lambda: make(backend="ivfpq").search(random_embeddings(1, 8)): "at least 256",
        lambda: rerank(torch.ones(2), torch.ones(3, 2), k1=0): "k1",
    }.items():
        with pytest.raises(InputError, match=message):
            bad()
    assert len(index) == 60


def test_missing_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from sumpool.retrieval import retrieval_metrics

    for name in ("faiss", "sklearn.cluster"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"sumpool\[faiss\]"):
        make(backend="hnsw").search(random_embeddings(1, 8))
    with pytest.raises(InputError, match=r"sumpool\[cluster\]"):
        retrieval_metrics(random_embeddings(4, 2), [0, 0, 1, 1], metrics=["nmi"])
    assert len(make().search(random_embeddings(1, 8)).items[0]) == 10
