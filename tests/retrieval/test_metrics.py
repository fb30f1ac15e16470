"""Retrieval metrics against a double loop, pytorch-metric-learning and hand-worked values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval import comparison, counting, metrics, retrieval_metrics

from .truth import ALL, CASES, metrics_by_loop, query_and_gallery, random_embeddings, ranking_by_loop, scores_by_loop

DISTANCES = ["cosine", "euclidean"]
PATHS = {"neighbours": 0, "default": 12, "counting": 10**6}
COPIED = {"each alone": 10**9, "copies together": 0}


@pytest.fixture(params=COPIED.values(), ids=COPIED)
def copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal embeddings compared one by one, or ranked together."""
    monkeypatch.setattr(comparison, "COPIED", request.param)


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("few", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("case", CASES)
def test_every_path_equals_the_double_loop(case: str, distance: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    embeddings, labels = CASES[case]
    scores = scores_by_loop(embeddings, embeddings, distance)
    expected = metrics_by_loop(ranking_by_loop(scores, own=True), labels, labels)
    result = retrieval_metrics(embeddings, labels, metrics=ALL, distance=distance)
    assert dict(result) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("few", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("case", CASES)
def test_gallery_equals_the_double_loop(case: str, distance: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    queries, labels, gallery, gallery_labels = query_and_gallery(case)
    scores = scores_by_loop(queries, gallery, distance)
    expected = metrics_by_loop(ranking_by_loop(scores, own=False), labels, gallery_labels)
    result = retrieval_metrics(queries, labels, gallery, gallery_labels, metrics=ALL, distance=distance)
    assert dict(result) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 40), dim=st.integers(1, 6), classes=st.integers(1, 8))
def test_small_integer_embeddings(seed: int, count: int, dim: int, classes: int) -> None:
    """Ties everywhere, including zero vectors and collinear ones."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randint(-1, 2, (count, dim), generator=generator).float()
    labels = torch.randint(0, classes, (count,), generator=generator).tolist()
    for distance in DISTANCES:
        scores = scores_by_loop(embeddings, embeddings, distance)
        expected = metrics_by_loop(ranking_by_loop(scores, own=True), labels, labels)
        result = retrieval_metrics(embeddings, labels, metrics=ALL, distance=distance)
        if expected:
            assert dict(result) == pytest.approx(expected, abs=1e-12)
        else:
            assert result.without_positive == count


@pytest.mark.parametrize("gallery", [False, True])
@pytest.mark.parametrize("case", ["random", "many per class", "uneven classes", "one class", "singletons", "wide"])
def test_equals_pytorch_metric_learning(case: str, gallery: bool) -> None:
    """Where there are no ties, whose order it does not define."""
    queries, labels, references, reference_labels = query_and_gallery(case)
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_reciprocal_rank")
    if gallery:
        sides = (queries, torch.tensor(labels), references, torch.tensor(reference_labels))
        theirs = AccuracyCalculator(include=include, k=len(references)).get_accuracy(*sides)
    else:
        sides = (references, torch.tensor(reference_labels))
        theirs = AccuracyCalculator(include=include, k=len(references) - 1).get_accuracy(*sides)
    ours = retrieval_metrics(*sides, metrics=ALL, distance="euclidean")
    names = {"precision_at_1": "p@1", "r_precision": "p@r", "mean_average_precision_at_r": "map@r"}
    names |= {"mean_reciprocal_rank": "mrr"}
    assert {name: ours[name] for name in names.values()} == pytest.approx(
        {mine: theirs[name] for name, mine in names.items()}, abs=1e-6, nan_ok=True
    )


def test_hand_worked_table() -> None:
    """One query, gallery at known distances: correct, wrong, correct, correct, with R = 3."""
    result = retrieval_metrics(
        torch.tensor([[1.0, 0.0]]),
        ["a"],
        torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]),
        ["a", "b", "a", "a"],
        metrics=ALL,
    )
    expected = {"p@1": 1, "p@r": 2 / 3, "map@r": (1 + 2 / 3) / 3, "map": (1 + 2 / 3 + 3 / 4) / 3, "mrr": 1}
    assert dict(result) == pytest.approx(expected | {"r@1": 1, "r@3": 1, "r@30": 1})


def test_map_at_r_counts_precision_only_at_correct_places() -> None:
    """The printed formula of the texts, P@R at every place, would give 0.5 here."""
    gallery = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
    result = retrieval_metrics(torch.tensor([[1.0, 0.0]]), [0], gallery, [1, 0, 0])
    assert result["map@r"] == pytest.approx((1 / 2) / 2)


def test_ties_go_to_the_lowest_index() -> None:
    same = torch.ones(4, 2)
    first = retrieval_metrics(torch.ones(1, 2), ["a"], same, ["b", "a", "b", "b"], metrics=["mrr"])
    assert first["mrr"] == 1 / 2
    alone = retrieval_metrics(same, ["a", "b", "b", "a"], metrics=["mrr"])  # each without itself
    assert alone.per_query["mrr"].tolist() == [1 / 3, 1 / 2, 1 / 2, 1]


def test_values_per_query_and_per_class() -> None:
    embeddings, labels = CASES["uneven classes"]
    result = retrieval_metrics(embeddings, labels)
    singles = torch.tensor([labels.count(label) == 1 for label in labels])
    assert result.without_positive == int(singles.sum()) == 20
    for name, values in result.per_query.items():
        assert torch.equal(values.isnan(), singles)
        assert result[name] == pytest.approx(float(values[~singles].mean()))
        assert result.per_class()[name][20] == pytest.approx(float(values[~singles].mean()))
        assert result.per_class()[name][:20].isnan().all()


def test_nothing_to_find() -> None:
    result = retrieval_metrics(random_embeddings(5, 3), range(5))
    assert result.without_positive == 5
    assert all(np.isnan(value) for value in result.values())
    other = retrieval_metrics(random_embeddings(5, 3), list("abcde"), random_embeddings(2, 3), ["x", "y"])
    assert other.without_positive == 5


def test_labels_of_any_kind() -> None:
    embeddings, labels = CASES["random"]
    expected = retrieval_metrics(embeddings, labels)
    texts = [f"class {label}" for label in labels]
    for other in (texts, np.array(texts, dtype=object), np.array(labels) * 1000, torch.tensor(labels) - 5):
        assert retrieval_metrics(embeddings, other) == expected


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_memory_maps(kind: type, tmp_path: Path) -> None:
    embeddings, labels = CASES["many per class"]
    stored = embeddings.numpy().astype(kind)
    np.save(tmp_path / "x.npy", stored)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = retrieval_metrics(torch.from_numpy(stored), labels, metrics=ALL)
    assert retrieval_metrics(mapped, labels, metrics=ALL) == expected
    assert retrieval_metrics(mapped, labels, mapped, labels, metrics=ALL)["p@1"] == 1


def clustered(count: int, dim: int, per_class: int, noise: float) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) // per_class
    centres = random_embeddings(int(labels.max()) + 1, dim, seed=1)
    return centres[labels] + noise * random_embeddings(count, dim, seed=2), labels


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("noise", [0.5, 2.0, 50.0])
def test_paths_agree_over_many_tiles(noise: float, distance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles, segments, pieces and both halves of the product, at sizes that fit none of them."""
    embeddings, labels = clustered(2500, 32, 5, noise)
    embeddings[1000:1040] = embeddings[2000:2040]
    results = []
    for few in PATHS.values():
        monkeypatch.setattr(metrics, "FEW", few)
        results.append(retrieval_metrics(embeddings, labels, distance=distance, memory_mb=8))
        results.append(retrieval_metrics(embeddings, labels, metrics=["p@1", "map", "mrr"], distance=distance))
    assert results[0] == results[2] == results[4]
    assert results[1] == results[3] == results[5]
    truth = _ranks_in_float64(embeddings, labels, distance)
    assert results[1].per_query["mrr"] == pytest.approx(1 / truth[:, 0].double().numpy(), abs=1e-15)
    ap = (torch.arange(1, 5) / truth).sum(1) / 4
    assert results[1].per_query["map"] == pytest.approx(ap.double().numpy(), abs=1e-6)


def _ranks_in_float64(embeddings: Tensor, labels: Tensor, distance: str) -> Tensor:
    x = embeddings.double()
    if distance == "cosine":
        # One row at a time and no BLAS: equal embeddings get equal scores wherever they are.
        length = torch.linalg.vector_norm(x, dim=1)
        scores = torch.stack([(row * x).sum(1) / (n * length) for row, n in zip(x, length, strict=True)])
    else:
        scores = torch.stack([-(row - x).square().sum(1) for row in x])
    scores.fill_diagonal_(-torch.inf)
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :-1]
    return (labels[order] == labels[:, None]).nonzero()[:, 1].view(len(x), -1) + 1


def test_shortcuts_of_float32_products_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bfloat16 or TF32 products allowed, the error bound would not hold."""
    mm, allowed = torch.mm, set()
    monkeypatch.setattr(
        torch, "mm", lambda a, b, out: allowed.add(torch.get_float32_matmul_precision()) or mm(a, b, out=out)
    )
    torch.set_float32_matmul_precision("medium")
    try:
        retrieval_metrics(*CASES["random"])
        retrieval_metrics(*CASES["many per class"])
        assert allowed == {"highest"}
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("case", ["random", "crowded", "far from zero", "huge", "tiny", "wide", "zero vectors"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_products_are_within_the_tolerance(case: str, distance: str) -> None:
    embeddings = CASES[case][0]
    pairs = comparison.Comparison(embeddings[::2], comparison.Gallery(embeddings, distance))
    i, j = torch.meshgrid(torch.arange(len(pairs.queries)), torch.arange(len(embeddings)), indexing="ij")
    exact = pairs.to_product(pairs.exact(i.flatten(), j.flatten()))
    product = (pairs.rows @ pairs.columns.T).flatten().double()
    assert (exact - product).abs().max() <= pairs.tolerance
    assert pairs.tolerance < (1e-2 if case == "crowded" else 1e-4)
    fine = pairs.fine(torch.arange(len(pairs.queries))).flatten()
    assert (exact - fine).abs().max() <= pairs.fine_tolerance < pairs.tolerance


@pytest.mark.parametrize("few", PATHS.values(), ids=PATHS)
def test_the_default_precision_does_not_matter(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    expected = retrieval_metrics(*CASES["random"])
    torch.set_default_dtype(torch.float64)
    try:
        assert retrieval_metrics(*CASES["random"]) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece of scores is larger than the setting allows, and none is N²."""
    sizes = []
    mm = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: sizes.append(out.numel()) or mm(a, b, out=out))
    embeddings, labels = clustered(3000, 8, 30, 1.0)
    retrieval_metrics(embeddings, labels, memory_mb=4)
    assert max(sizes) * 4 <= 4 * 2**20 / 12
    assert max(sizes) > 3000
    sizes.clear()
    retrieval_metrics(embeddings, torch.arange(3000) // 3)
    assert max(sizes) == counting.TILE**2


COPIES = {
    "collapsed": lambda x: torch.full_like(x, 0.1),
    "half zero": lambda x: x * (torch.arange(len(x)) % 2)[:, None],
    "zeros of both signs": lambda x: 0 * x,
    "a few points": lambda x: x[torch.arange(len(x)) % 7],
}


@pytest.mark.parametrize("per_class", [5, 100])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("case", COPIES)
def test_copies_are_not_compared_pair_by_pair(
    case: str, distance: str, per_class: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    exact = comparison.Comparison.exact
    monkeypatch.setattr(
        comparison.Comparison,
        "exact",
        lambda self, query, item: compared.append(len(query)) or exact(self, query, item),
    )
    count = 800
    embeddings, labels = COPIES[case](random_embeddings(count, 6)), torch.arange(count) % (count // per_class)
    result = retrieval_metrics(embeddings, labels, distance=distance)
    assert sum(compared) < 10 * count
    compared.clear()
    halves = (embeddings[::3], labels[::3], embeddings, labels)
    against = retrieval_metrics(*halves, distance=distance)
    assert sum(compared) < 10 * count
    monkeypatch.setattr(comparison, "COPIED", 10**9)
    assert retrieval_metrics(embeddings, labels, distance=distance) == result
    assert retrieval_metrics(*halves, distance=distance) == against


@pytest.mark.parametrize("few", PATHS.values(), ids=PATHS)
def test_recall_far_beyond_the_gallery(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    for name in ("r@61", "r@" + "9" * 20, "r@" + "9" * 5000):
        assert retrieval_metrics(*CASES["random"], metrics=[name])[name] == 1


def test_clustering_scores() -> None:
    embeddings, labels = clustered(200, 16, 20, 0.01)
    result = retrieval_metrics(embeddings, labels, metrics=["nmi", "ami", "p@1"])
    assert result["nmi"] > 0.9
    assert result["ami"] > 0.85
    mixed = labels[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    unrelated = retrieval_metrics(embeddings, mixed, metrics=["ami"])
    assert abs(unrelated["ami"]) < 0.05
    assert list(unrelated) == ["ami"]


BAD = {
    "NaN": (lambda x, y: (x.index_fill(0, torch.tensor([3]), torch.nan), y), "NaN or infinity in 1 of 60.*row 3"),
    "infinity": (lambda x, y: (x / 0, y), "NaN or infinity"),
    "integers": (lambda x, y: (x.long(), y), "floating-point"),
    "three axes": (lambda x, y: (x[None], y), r"\(N,D\)"),
    "empty": (lambda x, y: (x[:0], []), "non-empty"),
    "labels short": (lambda x, y: (x, y[:-1]), "one label per embedding expected, got 59 for 60"),
    "labels 2-D": (lambda x, y: (x, np.zeros((60, 2))), "one per embedding"),
    "labels of several lengths": (lambda x, y: (x, [[1, 2], *y[1:]]), "lists of several lengths"),
    "labels NaN": (lambda x, y: (x, [float("nan"), *y[1:]]), "all numbers or all texts, got NaN"),
    "labels NaN among texts": (lambda x, y: (x, np.array([np.nan, *map(str, y[1:])], dtype=object)), "all texts"),
    "labels None": (lambda x, y: (x, [None, *y[1:]]), "all numbers or all texts, got NaN, None"),
    "labels None everywhere": (lambda x, y: (x, [None] * 60), "all numbers or all texts, got NaN, None"),
    "labels mixed": (lambda x, y: (x, ["1", *y[1:]]), "all numbers or all texts"),
    "labels of two kinds": (lambda x, y: (x, y, x, [str(label) for label in y]), "got numbers and texts"),
    "gallery alone": (lambda x, y: (x, y, x), "together"),
    "other dimension": (lambda x, y: (x, y, x[:, 1:], y), "8 dimensions and the gallery 7"),
    "gallery labels": (lambda x, y: (x, y, x, y[1:]), "gallery: one label"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused(bad: str) -> None:
    spoil, message = BAD[bad]
    with pytest.raises(InputError, match=message):
        retrieval_metrics(*spoil(*CASES["random"]))


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown metric 'map@e'.*'map@r'"):
        retrieval_metrics(*CASES["random"], metrics=["map@e"])
    with pytest.raises(InputError, match="unknown metric 'r@0'"):
        retrieval_metrics(*CASES["random"], metrics=["r@0"])
    with pytest.raises(InputError, match="distance"):
        retrieval_metrics(*CASES["random"], distance="manhattan")
