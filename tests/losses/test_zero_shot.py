"""Zero-shot prediction: split, regression, loss."""

import math

import pytest
import torch

from sumpool.errors import InputError
from sumpool.losses import ZeroShotPrediction
from sumpool.losses.zero_shot import class_halves, ridge_prediction


def attributes(rows: int, count: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, count, generator=generator, dtype=torch.float64).softmax(1).requires_grad_()


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_halves_have_disjoint_classes(count: int) -> None:
    labels = torch.randint(count, (40,), generator=torch.Generator().manual_seed(count)) * 4 + 1
    half = class_halves(labels)
    first, second = set(labels[half].tolist()), set(labels[~half].tolist())
    assert not first & second
    assert abs(len(first) - len(second)) <= 1


def test_regression_is_the_formula() -> None:
    z, targets = attributes(9), torch.randn(9, 4, dtype=torch.float64)
    half = torch.tensor([0, 1, 1, 0, 0, 1, 0, 0, 1]).bool()
    predicted = ridge_prediction(z, targets, half, 0.05)
    for fitted in (half, ~half):
        columns = z[fitted].T  # Z_b: attributes × samples
        inverse = torch.linalg.inv(columns.T @ columns + 0.05 * torch.eye(columns.shape[1], dtype=torch.float64))
        matrix = targets[fitted].T @ inverse @ columns.T
        torch.testing.assert_close(predicted[~fitted], z[~fitted] @ matrix.T)


def test_gradients_flow_through_attributes_and_class_embeddings() -> None:
    loss = ZeroShotPrediction(classes=6, dim=4).double()
    labels = torch.tensor([0, 5, 2, 0, 2, 5, 3])
    z = attributes(7)
    assert torch.autograd.gradcheck(lambda z, _: loss(z, labels), (z, loss.class_embeddings))


def test_value_is_the_scaled_cross_entropy_over_all_classes() -> None:
    loss = ZeroShotPrediction(classes=["wren", "gull", "crow"], dim=4, scale=2.0).double()
    z, labels, index = attributes(4), ["wren", "gull", "gull", "wren"], torch.tensor([0, 1, 1, 0])
    table = loss.class_embeddings
    predicted = ridge_prediction(z, table[index], index == 1, 0.05)
    expected = torch.nn.functional.cross_entropy(2.0 * predicted @ table.T, index)
    torch.testing.assert_close(loss(z, labels), expected)


def test_a_batch_of_one_class_contributes_nothing() -> None:
    loss = ZeroShotPrediction(classes=6, dim=4).double()
    z = attributes(3)
    value = loss(z, [2, 2, 2])
    assert value == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(value, (z, loss.class_embeddings)))


def test_attributes_of_a_pooling_that_is_not_ready_are_a_constant() -> None:
    loss = ZeroShotPrediction(classes=6, dim=4)
    z = torch.zeros(4, 5, requires_grad=True)
    value = loss(z, [0, 0, 3, 3])
    (gradient,) = torch.autograd.grad(value, loss.class_embeddings)
    assert value.item() == pytest.approx(math.log(6))
    assert (gradient == 0).all()


def test_a_pooling_without_attributes_is_named() -> None:
    with pytest.raises(InputError, match="the pooling gives none: use one with prototypes"):
        ZeroShotPrediction(classes=6, dim=4)(None, [0, 1])


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="dim must be at least 1, got 0"):
        ZeroShotPrediction(3, 0)
    with pytest.raises(InputError, match="attributes hold NaN or infinity in 2 of 2 rows"):
        ZeroShotPrediction(3, 4)(torch.full((2, 5), math.nan), [0, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    loss = ZeroShotPrediction(classes=16, dim=32)
    z = attributes(64, 64).detach().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(z, torch.arange(64) % 16)
    (gradient,) = torch.autograd.grad(value, z)
    assert value.isfinite()
    assert gradient.isfinite().all()
