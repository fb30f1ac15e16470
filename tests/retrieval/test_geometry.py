"""Geometry diagnostics against loops, SciPy and sampling."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull, Delaunay

from sumpool.errors import InputError
from sumpool.retrieval import class_geometry, hull_overlap, spectrum

from .truth import random_embeddings


def radius_by_loop(points: np.ndarray) -> float:
    """Mean over k of the covering radius of the first k greedy picks."""
    cover, radii = [0], []
    while True:
        gaps = [min(math.dist(point, points[c]) for c in cover) for point in points]
        radii.append(max(gaps))
        if len(cover) == len(points):
            return sum(radii) / len(radii)
        cover.append(int(np.argmax(gaps)))


def test_class_geometry_equals_loops() -> None:
    x, labels = random_embeddings(40, 3), np.array([i % 4 for i in range(40)])
    geometry = class_geometry(x, labels)
    points = x.double().numpy()
    means = [points[labels == c].mean(0) for c in range(4)]
    for c in range(4):
        members = points[labels == c]
        pairs = [math.dist(a, b) for i, a in enumerate(members) for j, b in enumerate(members) if i != j]
        others = [math.dist(means[c], means[d]) for d in range(4) if d != c]
        assert geometry.covering_radius[c] == pytest.approx(radius_by_loop(members))
        assert geometry.intra[c] == pytest.approx(np.mean(pairs))
        assert geometry.inter[c] == pytest.approx(np.mean(others))
        assert geometry.nearest[c] == pytest.approx(min(others))


def test_geometry_of_one_class() -> None:
    geometry = class_geometry(random_embeddings(3, 2), ["a"] * 3)
    assert geometry.inter.isnan().all()
    assert geometry.nearest.isnan().all()
    with pytest.raises(InputError, match="one label per embedding expected, got 2 for 3"):
        class_geometry(random_embeddings(3, 2), [0, 1])


def test_hull_overlap_equals_sampling() -> None:
    points = random_embeddings(60, 2)
    labels = np.array([i % 3 for i in range(60)])
    points[labels == 1] += torch.tensor([1.5, 0.0])
    points[labels == 2] += torch.tensor([40.0, 0.0])
    overlap = hull_overlap(points, labels)
    a, b = (Delaunay(points[labels == c].numpy()) for c in (0, 1))
    dots = np.random.default_rng(0).uniform(-5, 7, (400_000, 2))
    inside_a, inside_b = a.find_simplex(dots) >= 0, b.find_simplex(dots) >= 0
    assert float(overlap[0, 1]) == pytest.approx((inside_a & inside_b).sum() / (inside_a | inside_b).sum(), abs=0.01)
    assert overlap[0, 2] == overlap[1, 2] == 0
    assert torch.equal(overlap, overlap.T)
    assert overlap.diagonal().tolist() == [1, 1, 1]


def test_hull_areas_equal_scipy() -> None:
    from sumpool.retrieval.hulls import clip, convex_hull, polygon_area

    for seed in range(20):
        a, b = random_embeddings(12, 2, seed), random_embeddings(12, 2, seed + 100)
        hull = convex_hull(a)
        assert polygon_area(hull) == pytest.approx(ConvexHull(a.double().numpy()).volume)
        assert polygon_area(clip(hull, convex_hull(b))) == pytest.approx(polygon_area(clip(convex_hull(b), hull)))
        assert polygon_area(clip(hull, hull)) == pytest.approx(polygon_area(hull))


def test_degenerate_hulls() -> None:
    line = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    overlap = hull_overlap(torch.cat([line, square, square[:1]]), [0] * 3 + [1] * 4 + [2])
    assert torch.equal(overlap, torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match="finite points"):
        hull_overlap(torch.zeros(3, 3), [0, 1, 2])


def test_spectrum() -> None:
    x = random_embeddings(200, 6) * torch.tensor([5.0, 3.0, 1.0, 1.0, 0.1, 0.0])
    shares, rank = spectrum(x)
    variances = np.sort(np.linalg.eigvalsh(np.cov(x.double().numpy().T)))[::-1]
    expected = variances / variances.sum()
    assert shares.numpy() == pytest.approx(expected, abs=1e-12)
    used = expected[expected > 1e-15]
    assert rank == pytest.approx(np.exp(-(used * np.log(used)).sum()))
    assert spectrum(torch.ones(4, 3)).effective_rank == 1
    assert len(spectrum(random_embeddings(2, 6)).shares) == 6
