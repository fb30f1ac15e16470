"""GAP as a mixture of prototypes: hand-worked cells, and the bound for any features."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sumpool.ops.k_center import greedy_k_center
from sumpool.studies.gap_analysis import active_points, class_shares, first_of_each_class, histogram, verdict


def test_cells_of_a_worked_example() -> None:
    prototypes = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
    features = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [4.0, 0.0], [7.0, 0.0]]])
    cells = histogram(features, prototypes)
    assert cells.shares.tolist() == [[0.5, 0.5]]
    assert cells.radius.tolist() == [3.0]
    # PCC (2, 0), GAP (3, 1/4)
    torch.testing.assert_close(cells.error, torch.tensor([(1 + 1 / 16) ** 0.5]))


@given(seed=st.integers(0, 10_000), count=st.integers(1, 12), dim=st.integers(1, 5))
def test_the_error_stays_below_the_covering_radius(seed: int, count: int, dim: int) -> None:
    features = torch.randn(6, 9, dim, generator=torch.Generator().manual_seed(seed))
    pool = features.flatten(0, 1)
    picked = greedy_k_center(pool, count)
    cells = histogram(features, pool[picked.indices])
    assert bool((cells.error <= cells.radius + 1e-5).all())
    assert float(cells.radius.max()) == pytest.approx(float(picked.radius), abs=1e-3)  # cdist rounds small distances
    torch.testing.assert_close(cells.shares.sum(1), torch.ones(6))


def test_the_active_prototypes_of_a_class() -> None:
    labels = torch.tensor([0, 1, 0])
    shares = class_shares(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), labels)
    assert shares.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    points, owners = active_points(shares >= 0.5, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert points.tolist() == [[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]
    assert owners.tolist() == [0, 0, 1]


def test_the_sample_has_the_first_images_of_every_class() -> None:
    assert first_of_each_class(torch.tensor([1, 0, 1, 1, 0]), 2).tolist() == [1, 4, 0, 2]


@pytest.mark.parametrize(
    ("within", "overlapping", "expected"),
    [(1.0, 0.4, "reproduced"), (0.999, 0.4, "not reproduced"), (1.0, 0.0, "not reproduced")],
)
def test_one_image_beyond_the_bound_refutes_it(within: float, overlapping: float, expected: str) -> None:
    results = {"within cover": within, "within own radius": 1.0, "overlapping pairs of classes": overlapping}
    assert verdict({**results, "cover": 0.1, "images": 1000, "largest error": 0.05})[0] == expected
