"""Each claim about skewed means: definition, monotone, limits, special cases, convexity; and stability."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sumpool.errors import InputError
from sumpool.ops.skewed_means import log_exp_mean, power_mean, skewed_mean

FAMILIES = [log_exp_mean, power_mean]
NUMBERS = st.lists(st.floats(0.01, 10), min_size=2, max_size=12)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_definition() -> None:
    values = tensor([5, 1, 4, 2])
    assert skewed_mean(values, 1) == 5
    assert skewed_mean(values, -1) == 1
    assert skewed_mean(values, 3).item() == pytest.approx(11 / 3)
    assert skewed_mean(values, -3).item() == pytest.approx(7 / 3)
    assert skewed_mean(values, 4) == skewed_mean(values, -4) == values.mean()
    with pytest.raises(InputError, match="±1 … ±4 for 4 values, got 0"):
        skewed_mean(values, 0)


def test_definition_along_the_last_dimension() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert skewed_mean(values, 2).tolist() == [1.5, 4.5]


@pytest.mark.parametrize("mean", FAMILIES)
@given(values=NUMBERS, first=st.floats(-50, 50), second=st.floats(-50, 50))
@settings(max_examples=60, deadline=None)
def test_increases_with_the_skew_between_minimum_and_maximum(mean, values, first, second) -> None:
    low, high = sorted((first, second))
    numbers = tensor(values)
    slack = 1e-9 * max(values)
    assert numbers.min() - slack <= mean(numbers, low) <= mean(numbers, high) + slack
    assert mean(numbers, high) <= numbers.max() + slack


@pytest.mark.parametrize("mean", FAMILIES)
@given(values=NUMBERS)
@settings(max_examples=40, deadline=None)
def test_limits(mean, values) -> None:
    numbers = tensor(values)
    # The mean misses the maximum by at most log(N)/λ (of the logarithms for the power mean).
    assert mean(numbers, 1e8).item() == pytest.approx(max(values), rel=1e-5)
    assert mean(numbers, -1e8).item() == pytest.approx(min(values), rel=1e-5)


@pytest.mark.parametrize("mean", FAMILIES)
@pytest.mark.parametrize("count", [1, 2, 3, -3, -2, -1])
def test_some_skew_gives_every_exact_skewed_mean(mean, count: int) -> None:
    numbers = tensor([0.5, 1.0, 1.7, 3.0])
    target = skewed_mean(numbers, count).item()
    low, high = -1e4, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(numbers, middle) < target else (low, middle)
    assert mean(numbers, low).item() == pytest.approx(target, rel=1e-3)


@pytest.mark.parametrize("skew", [-30.0, -1.0, -1e-3, 1e-3, 1.0, 30.0])
def test_the_formulas(skew: float) -> None:
    values = [0.3, 1.1, 0.9, 2.0]
    log_exp = math.log(sum(math.exp(skew * s) for s in values) / 4) / skew
    power = (sum(s**skew for s in values) / 4) ** (1 / skew)
    assert log_exp_mean(tensor(values), skew).item() == pytest.approx(log_exp, rel=1e-9)
    assert power_mean(tensor(values), skew).item() == pytest.approx(power, rel=1e-9)


def test_special_cases() -> None:
    numbers = tensor([0.3, 1.1, 0.9, 2.0])
    torch.testing.assert_close(log_exp_mean(numbers, 0.0), numbers.mean())
    torch.testing.assert_close(power_mean(numbers, 1.0), numbers.mean())
    torch.testing.assert_close(power_mean(numbers, 0.0), numbers.log().mean().exp())
    torch.testing.assert_close(power_mean(numbers, -1.0), 1 / (1 / numbers).mean())
    torch.testing.assert_close(power_mean(numbers, 2.0), numbers.square().mean().sqrt())


def test_another_base_is_another_skew() -> None:
    numbers, skew, base = tensor([0.3, 1.1, 0.9]), 1.7, 10.0
    in_base = torch.log10((base ** (skew * numbers)).mean()) / skew
    torch.testing.assert_close(log_exp_mean(numbers, skew * math.log(base)), in_base)


@pytest.mark.parametrize("mean", FAMILIES)
@pytest.mark.parametrize("skew", [-1e6, -300.0, -1e-9, -5e-324, 5e-324, 1e-309, 1e-40, 1e-9, 300.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_skews_are_stable(mean, skew: float, dtype: torch.dtype) -> None:
    numbers = torch.tensor([0.5, 80.0, 3.0, 79.0], dtype=dtype, requires_grad=True)
    value = mean(numbers, skew)
    (gradient,) = torch.autograd.grad(value, numbers)
    assert numbers.min() <= value <= numbers.max()
    assert gradient.isfinite().all()
    if abs(skew) < 1:  # nothing cancels near the mean
        limit = numbers.mean() if mean is log_exp_mean else numbers.log().mean().exp()
        torch.testing.assert_close(value, limit)


@pytest.mark.parametrize("mean", FAMILIES)
@pytest.mark.parametrize("skew", [-2000.0, -30.0, -1e-3, 0.7, 1.5, 100.0, 2000.0])
def test_single_precision_with_many_values_of_which_few_dominate(mean, skew: float) -> None:
    normal = torch.randn(300_000, generator=torch.Generator().manual_seed(0))
    exact = (1 + 0.1 * normal).double().requires_grad_()
    single = exact.detach().float().requires_grad_()
    values = mean(exact, skew), mean(single, skew)
    slope, found = (torch.autograd.grad(value, x)[0] for value, x in zip(values, (exact, single), strict=True))
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-6)
    assert (found - slope).norm() < 1e-6 * (1 + abs(skew)) * slope.norm()


@pytest.mark.parametrize("skew", [-2000.0, -40.0, 40.0, 2000.0])
def test_one_of_many_dominates_in_every_row(skew: float) -> None:
    sign = math.copysign(1, skew)
    rows = torch.full((2, 100_000), -sign, dtype=torch.float32)
    rows[1] = 0.25  # nothing stands out of the second row
    rows[0, 7] = sign
    rows.requires_grad_()
    found = log_exp_mean(rows, skew)
    (slope,) = torch.autograd.grad(found.sum(), rows)
    rest = math.exp(-2 * abs(skew)) * 99_999
    assert found[0].item() == pytest.approx(sign + math.log((1 + rest) / 100_000) / skew, rel=1e-6)
    assert found[1] == 0.25
    assert slope[0, 7].item() == pytest.approx(1 / (1 + rest), rel=1e-6)
    torch.testing.assert_close(slope[1], torch.full((100_000,), 1e-5))


@pytest.mark.parametrize("mean", FAMILIES)
@pytest.mark.parametrize("skew", [math.inf, -math.inf, math.nan, 1e39])
def test_a_skew_that_is_no_finite_number_is_refused(mean, skew: float) -> None:
    with pytest.raises(InputError, match="skew must be a finite number"):
        mean(torch.ones(3), skew)


@pytest.mark.parametrize("mean", FAMILIES)
@pytest.mark.parametrize("skew", [-3.0, 0.0, 0.5, 4.0])
def test_gradcheck(mean, skew: float) -> None:
    numbers = tensor([0.3, 1.1, 0.9, 2.0]).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: mean(s, skew), (numbers,))


def gap(mean, skew: float) -> Tensor:
    """Midpoint convexity over random pairs of metrics M ⪰ 0, for the distances (x_i − x̄)ᵀM(x_i − x̄)."""
    torch.manual_seed(0)
    points = torch.randn(200, 8, 3, dtype=torch.float64)
    roots = torch.randn(2, 200, 3, 3, dtype=torch.float64)
    first, second = roots @ roots.mT

    def value(metric: Tensor) -> Tensor:
        return mean(torch.einsum("bid,bde,bie->bi", points, metric, points), skew)

    return (value(first) + value(second)) / 2 - value((first + second) / 2)


@pytest.mark.parametrize(
    ("mean", "skew"), [(log_exp_mean, 0.3), (log_exp_mean, 3.0), (power_mean, 1.5), (power_mean, 4.0)]
)
def test_convex_in_the_metric_for_positive_skew(mean, skew: float) -> None:
    assert (gap(mean, skew) >= -1e-9).all()
    assert (gap(mean, -skew) <= 1e-9).all()  # −b(−λ) is convex


def test_the_text_claims_too_much_for_the_power_mean_below_one() -> None:
    # b(λ) is stated to be convex for all λ > 0; the power mean is concave for 0 < λ < 1.
    assert (gap(power_mean, 0.5) < 0).all()
