"""Similarities and distances against normalise-then-multiply and cdist."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from sumpool.ops.similarity import FLOORS, distance, similarity

every_norm = pytest.mark.parametrize("norm", FLOORS)


@pytest.fixture
def sets() -> tuple[Tensor, Tensor]:
    """Norms on both sides of 1."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(5, 4, generator=generator, dtype=torch.float64) * 0.5
    return x.requires_grad_(), y.requires_grad_()


def divided(x: Tensor, norm: str) -> Tensor:
    lengths = x.norm(dim=1, keepdim=True)
    return {"unit": normalize(x), "lipschitz": x / lengths.clamp(min=1), "none": x}[norm]


@every_norm
def test_equals_the_plain_way_with_gradients(norm: str, sets: tuple[Tensor, Tensor]) -> None:
    first, second = (divided(tensor, norm) for tensor in sets)
    for ours, theirs in [
        (similarity(*sets, norm), first @ second.T),
        (distance(*sets, norm), torch.cdist(first, second)),
    ]:
        torch.testing.assert_close(ours, theirs)
        weights = torch.randn_like(ours)
        expected = torch.autograd.grad((theirs * weights).sum(), sets, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad((ours * weights).sum(), sets), expected)


@every_norm
def test_gradcheck(norm: str, sets: tuple[Tensor, Tensor]) -> None:
    assert torch.autograd.gradcheck(lambda x, y: similarity(x, y, norm), sets)
    assert torch.autograd.gradcheck(lambda x, y: distance(x, y, norm), sets)


@every_norm
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_are_at_distance_zero_without_gradient(norm: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(3, 64, dtype=dtype) / 16).requires_grad_()
    own = distance(x, x.detach(), norm).diagonal()
    (gradient,) = torch.autograd.grad(own.sum(), x)
    assert (own == 0).all()
    assert (gradient == 0).all()


def test_a_zero_vector_has_similarity_zero_and_a_finite_gradient() -> None:
    x = torch.zeros(1, 3, requires_grad=True)
    value = similarity(x, torch.eye(3))
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert (value == 0).all()
    assert gradient.isfinite().all()


def test_only_asked_for_gradients_are_computed(sets: tuple[Tensor, Tensor]) -> None:
    x, y = sets
    full = torch.autograd.grad(similarity(x, y).square().sum(), (x, y))
    (left,) = torch.autograd.grad(similarity(x, y.detach()).square().sum(), x)
    (right,) = torch.autograd.grad(similarity(x.detach(), y).square().sum(), y)
    torch.testing.assert_close((left, right), full)
