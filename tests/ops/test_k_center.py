"""Greedy k-center against a plain loop, and its guarantee."""

import itertools

import pytest
import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.ops.k_center import greedy_k_center


def loop(points: Tensor, k: int, cover: list[Tensor]) -> tuple[list[int], float]:
    cover, picks = list(cover), []
    for _ in range(k):
        gaps = [min((float((p - q).norm()) for q in cover), default=float("inf")) for p in points]
        picks.append(max(range(len(points)), key=lambda index: gaps[index]))
        cover.append(points[picks[-1]])
    return picks, max(min(float((p - q).norm()) for q in cover) for p in points)


@pytest.mark.parametrize("cover_size", [0, 3])
def test_equals_a_loop_for_every_pool_of_a_batch(cover_size: int) -> None:
    torch.manual_seed(0)
    points = torch.randn(4, 20, 3, dtype=torch.float64)
    cover = torch.randn(4, cover_size, 3, dtype=torch.float64)
    got = greedy_k_center(points, 5, cover)
    for pool in range(4):
        picks, radius = loop(points[pool], 5, list(cover[pool]))
        assert got.indices[pool].tolist() == picks
        assert float(got.radius[pool]) == pytest.approx(radius)


def test_radius_is_within_twice_the_best() -> None:
    points = torch.randn(10, 2, generator=torch.Generator().manual_seed(1))
    distances = torch.cdist(points, points)
    best = min(float(distances[list(chosen)].amin(0).max()) for chosen in itertools.combinations(range(10), 3))
    assert best <= float(greedy_k_center(points, 3).radius) <= 2 * best


def test_mask_hides_points_and_a_small_pool_repeats() -> None:
    points = torch.tensor([[9.0], [0.0], [1.0], [99.0]])
    mask = torch.tensor([False, True, True, False])
    got = greedy_k_center(points, 3, mask=mask)
    assert got.indices.tolist()[:2] == [1, 2]
    assert mask[got.indices].all()
    assert float(got.radius) == 0


def test_more_centers_never_cover_worse() -> None:
    points = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    radii = [float(greedy_k_center(points, k).radius) for k in range(1, 51)]
    assert radii == sorted(radii, reverse=True)
    assert radii[-1] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.empty(0, 2), 1), "at least one point"),
        ((torch.ones(3, 2), 0), "k = 0"),
        ((torch.full((3, 2), torch.nan), 1), "NaN"),
        ((torch.ones(3, 2), 1, torch.ones(2, 3)), "does not match"),
        ((torch.ones(3, 2), 1, None, torch.zeros(3, dtype=torch.bool)), "without points"),
        ((torch.ones(3, 2), 1, None, torch.ones(3)), "must be boolean"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        greedy_k_center(*arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_pool_that_covers_itself_has_radius_zero(dtype: torch.dtype) -> None:
    points = (torch.randn(60, 40, generator=torch.Generator().manual_seed(0)) + 1).to(dtype)
    assert float(greedy_k_center(points, 1, cover=points).radius) == 0


def test_hidden_points_may_hold_anything() -> None:
    points = torch.tensor([[0.0], [torch.nan], [3.0], [torch.inf]])
    picked = greedy_k_center(points, 2, mask=torch.tensor([True, False, True, False]))
    assert picked.indices.tolist() == [0, 2]
    assert float(picked.radius) == 0
