"""Partial transport against independent truths: SciPy's LP, a generic convex solver, the paper's iteration, halving."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from sumpool.errors import InputError
from sumpool.ops.transport import Transport, partial_transport
from sumpool.ops.transport_reference import linear_program, paper_iteration

MASSES = [1e-3, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0]
SHARPNESSES = [0.0, 1e-3, 0.5, 5.0, 20.0, 100.0, 1e4]


def bisection(cost: Tensor, mass: float, sharpness: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, attributes and residual by 200 halvings of the scalar equation in float64: slow and unmistakable."""
    cost = cost.double()
    u = torch.logsumexp(-sharpness * cost, 1)
    low, high = -u.amax(1, keepdim=True) - 100, -u.amin(1, keepdim=True) + 100
    for _ in range(200):
        middle = (low + high) / 2
        too_little = torch.sigmoid(u + middle).mean(1, keepdim=True) < mass
        low, high = torch.where(too_little, middle, low), torch.where(too_little, high, middle)
    weights = torch.sigmoid(u + high) / (cost.shape[2] * mass)
    attributes = (torch.softmax(-sharpness * cost, 1) * weights[:, None]).sum(2)
    return weights, attributes, torch.sigmoid(-u - high) / cost.shape[2]


def random_cost(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return (2 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("sharpness", SHARPNESSES)
def test_equals_bisection(mass: float, sharpness: float, dtype: torch.dtype) -> None:
    # Costs are rounded to the dtype first; what is left is the rounding of the result. 2e-11: float64 costs times 1e4.
    tolerance = {torch.float64: 2e-11, torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    for shape in ((4, 3, 1), (4, 1, 10), (3, 16, 49)):
        cost = random_cost(*shape, dtype=dtype)
        got = partial_transport(cost, mass, sharpness)
        for value, exact in zip(got[:3], bisection(cost, mass, sharpness), strict=True):
            assert value.dtype == dtype
            error = (value.double() - exact).abs().max() / exact.abs().max().clamp_min(1 / shape[2])
            assert error <= tolerance, (shape, float(error))


@pytest.mark.parametrize("mass", [0.13, 0.5, 0.87])
def test_large_sharpness_is_the_linear_program(mass: float) -> None:
    cost = random_cost(1, 3, 7)
    program = linear_program(cost, mass)
    smooth = partial_transport(cost, mass, 3e4)
    truth = scipy_program(cost[0].numpy(), mass)
    np.testing.assert_allclose(program.plan[0].numpy(), truth, atol=1e-9)
    np.testing.assert_allclose(smooth.plan[0].numpy(), truth, atol=1e-9)
    np.testing.assert_allclose(program.weights[0].numpy(), truth.sum(0) / mass, atol=1e-9)
    np.testing.assert_allclose(program.attributes[0].numpy(), truth.sum(1) / mass, atol=1e-9)
    np.testing.assert_allclose(program.residual[0].numpy(), 1 / 7 - truth.sum(0), atol=1e-9)


def scipy_program(cost: np.ndarray, mass: float) -> np.ndarray:
    """(P1) as scipy.optimize.linprog sees it: variables π (flattened) and ρ."""
    prototypes, features = cost.shape
    objective = np.concatenate([cost.ravel(), np.zeros(features)])
    per_feature = np.hstack([np.tile(np.eye(features), prototypes), np.eye(features)])
    total = np.concatenate([np.ones(cost.size), np.zeros(features)])[None]
    equations, right = np.vstack([per_feature, total]), np.concatenate([np.full(features, 1 / features), [mass]])
    return linprog(objective, A_eq=equations, b_eq=right).x[: cost.size].reshape(cost.shape)


@pytest.mark.parametrize(("mass", "sharpness"), [(0.3, 5.0), (0.8, 2.0), (0.5, 10.0)])
def test_minimises_the_entropic_problem(mass: float, sharpness: float) -> None:
    cost = random_cost(1, 2, 4)
    got = partial_transport(cost, mass, sharpness)
    linear = np.concatenate([cost[0].numpy().ravel(), np.zeros(4)])

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        x = np.maximum(x, 1e-300)
        return linear @ x + (x * np.log(x)).sum() / sharpness, linear + (np.log(x) + 1) / sharpness

    constraints = [
        {"type": "eq", "fun": lambda x: x[:8].reshape(2, 4).sum(0) + x[8:] - 1 / 4},
        {"type": "eq", "fun": lambda x: x[:8].sum() - mass},
    ]
    start = np.concatenate([np.full(8, mass / 8), np.full(4, (1 - mass) / 4)])
    options = {"ftol": 1e-14, "maxiter": 1000}
    truth = minimize(
        objective, start, jac=True, bounds=[(0, None)] * 12, constraints=constraints, method="SLSQP", options=options
    ).x
    np.testing.assert_allclose(got.plan[0].numpy(), truth[:8].reshape(2, 4), atol=1e-6)
    np.testing.assert_allclose(got.residual[0].numpy(), truth[8:], atol=1e-6)


@pytest.mark.parametrize("gradient", ["closed", "unrolled"])
def test_equals_the_papers_iteration_where_it_converges(gradient: str) -> None:
    upstream = torch.randn(3, 9, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    def outputs(result: Transport, cost: Tensor) -> tuple[Tensor, ...]:
        (grad,) = torch.autograd.grad((result.weights, result.attributes), cost, upstream)
        return result.weights, result.attributes, result.residual, result.plan, grad

    cost = random_cost(3, 4, 9).requires_grad_()
    ours = outputs(partial_transport(cost, 0.3, 5.0), cost)
    paper = outputs(paper_iteration(cost, 0.3, 5.0, steps=400, gradient=gradient), cost)
    for value, published in zip(ours, paper, strict=True):
        torch.testing.assert_close(value, published, rtol=1e-12, atol=1e-14)


def test_the_papers_iteration_is_wrong_near_mass_one_and_in_half_precision() -> None:
    """What the exact solver is for; if the iteration ever passed this, it would not be the published one."""
    cost = random_cost(8, 4, 49) ** 3
    exact = bisection(cost, 0.99, 20.0)[0]
    assert (paper_iteration(cost, 0.99, 20.0).weights - exact).abs().max() > 0.1 * exact.max()
    far = torch.full((1, 2, 4), 1.7, dtype=torch.float16)
    assert paper_iteration(far, 0.3, 20.0).weights.isnan().any()
    torch.testing.assert_close(partial_transport(far, 0.3, 20.0).weights, torch.full_like(far[:, 0], 0.25))


def results(cost: Tensor, mass: Tensor, sharpness: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    transport = partial_transport(cost, mass, sharpness, mask)
    return transport.weights, transport.attributes, transport.residual, transport.plan


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_to_second_order(masked: bool) -> None:
    cost = random_cost(3, 2, 5).requires_grad_()
    mass = torch.tensor([0.2, 0.5, 0.95], dtype=torch.float64, requires_grad=True)
    sharpness = torch.tensor([0.5, 3.0, 8.0], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 3 + [True] * 2]) if masked else None
    inputs = (cost, mass, sharpness, mask)
    assert gradcheck(results, inputs)
    assert gradgradcheck(results, inputs)
    assert gradcheck(lambda c: partial_transport(c, 0.3, 5.0, mask).weights, (cost,))
    assert gradcheck(lambda c: partial_transport(c, 0.3, 5.0, mask).residual, (cost,))


def test_gradient_in_mass_at_one_is_the_one_sided_derivative() -> None:
    cost = random_cost(1, 3, 6)
    mass = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    loss = (partial_transport(cost, mass, 2.0).weights * torch.arange(6)).sum()
    step = 1e-6
    below = (bisection(cost, 1 - step, 2.0)[0] * torch.arange(6)).sum()
    (grad,) = torch.autograd.grad(loss, mass)
    torch.testing.assert_close(grad, (loss - below) / step, rtol=1e-4, atol=1e-6)


def test_gradient_is_finite_where_everything_saturates() -> None:
    cost = torch.tensor([[[0.0, 0.0, 2.0, 2.0]]], requires_grad=True)
    mass = torch.tensor(0.5, requires_grad=True)
    loss = (partial_transport(cost, mass, 1e4).weights * torch.arange(4)).sum()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, (cost, mass)))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 12), st.sampled_from(MASSES), st.sampled_from(SHARPNESSES),
    st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 2.0, 50.0]),
)  # fmt: skip
def test_facts_of_every_solution(
    images: int, prototypes: int, features: int, mass: float, sharpness: float, seed: int, spread: float
) -> None:
    cost = spread * random_cost(images, prototypes, features, seed=seed)  # spread 0: identical features
    got = partial_transport(cost, mass, sharpness)
    tight = {"rtol": 0, "atol": 1e-9}
    torch.testing.assert_close(got.weights.sum(1), torch.ones(images).double(), **tight)
    torch.testing.assert_close(got.attributes.sum(1), torch.ones(images).double(), **tight)
    torch.testing.assert_close(got.plan.sum((1, 2)), torch.full((images,), mass, dtype=torch.float64), **tight)
    torch.testing.assert_close(got.residual + got.plan.sum(1), torch.full_like(got.residual, 1 / features), **tight)
    assert min(float(part.min()) for part in (got.weights, got.residual, got.plan)) >= 0
    assert float(got.weights.max()) <= 1 / (features * mass) + 1e-12
    if mass == 1 or sharpness == 0 or spread == 0 or features == 1:
        torch.testing.assert_close(got.weights, torch.full_like(got.weights, 1 / features), **tight)
    order, relabel = torch.randperm(features), torch.randperm(prototypes)
    shuffled = partial_transport(cost[:, relabel][:, :, order], mass, sharpness)
    torch.testing.assert_close(shuffled.weights, got.weights[:, order], **tight)
    torch.testing.assert_close(shuffled.attributes, got.attributes[:, relabel], **tight)


@pytest.mark.parametrize("mass", MASSES)
def test_mask_is_the_same_as_leaving_features_out(mass: float) -> None:
    cost, mask = random_cost(2, 3, 8), torch.zeros(2, 8, dtype=torch.bool)
    mask[0, [1, 4, 6]] = True
    mask[1, 2] = True
    got = partial_transport(torch.where(mask[:, None], cost, math.nan), mass, 5.0, mask)
    for image, keep in enumerate(mask):
        alone = partial_transport(cost[image : image + 1, :, keep], mass, 5.0)
        torch.testing.assert_close(got.weights[image, keep], alone.weights[0])
        torch.testing.assert_close(got.attributes[image], alone.attributes[0])
        assert not got.weights[image, ~keep].any()
        assert not got.residual[image, ~keep].any()


def test_one_mass_and_sharpness_per_image() -> None:
    cost = random_cost(3, 4, 6)
    masses, sharpnesses = torch.tensor([0.2, 0.6, 1.0]), torch.tensor([0.0, 5.0, 50.0])
    got = partial_transport(cost, masses, sharpnesses)
    for image in range(3):
        alone = partial_transport(cost[image : image + 1], masses[image], sharpnesses[image])
        torch.testing.assert_close(got.weights[image], alone.weights[0])


@pytest.mark.parametrize("mass", [0.02, 0.3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("sharpness", [0.0, 5.0, 1e4])
def test_traced_solution_equals_the_eager_one(mass: float, sharpness: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cost, mask = random_cost(8, 3, 50), torch.rand(8, 50) > 0.3
    eager = partial_transport(cost, mass, sharpness, mask)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    traced = partial_transport(cost, mass, sharpness, mask)
    torch.testing.assert_close(traced.weights, eager.weights, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(traced.attributes, eager.attributes, rtol=1e-8, atol=1e-10)


def test_autocast_does_not_lower_the_precision() -> None:
    cost = random_cost(2, 4, 9, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = partial_transport(cost, 0.3, 5.0)
    assert torch.equal(inside.weights, partial_transport(cost, 0.3, 5.0).weights)
    assert torch.equal(inside.attributes, partial_transport(cost, 0.3, 5.0).attributes)


def test_memory_is_the_kernel_and_vectors_not_the_plan() -> None:
    """What is kept for the backward does not depend on the steps, and is one (B,M,N) array beside the cost."""
    cost = random_cost(4, 64, 256, dtype=torch.float32).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        partial_transport(cost, 0.9, 100.0)
    large = [tensor for tensor in kept if tensor.numel() >= cost.numel() and tensor is not cost]
    assert len([tensor for tensor in large if tensor.data_ptr() != cost.data_ptr()]) == 1


BAD = [
    ({"mass": 0.0}, "mass must be in"),
    ({"mass": 1.1}, "mass must be in"),
    ({"mass": torch.tensor([0.5, -1.0])}, "mass must be in"),
    ({"mass": math.nan}, "mass must be in"),
    ({"sharpness": -1.0}, "sharpness must be finite"),
    ({"sharpness": math.inf}, "sharpness must be finite"),
    ({"sharpness": torch.ones(3)}, "one per image"),
    ({"cost": torch.full((2, 3, 4), math.nan)}, "NaN or infinite"),
    ({"cost": torch.ones(2, 3, 4, dtype=torch.long)}, "floating point"),
    ({"cost": torch.ones(3, 4)}, "images, prototypes, features"),
    ({"cost": torch.ones(2, 3, 0)}, "none of them empty"),
    ({"mask": torch.tensor([[True] * 4, [False] * 4])}, "every feature of image 1"),
    ({"mask": torch.ones(2, 4)}, "mask must be boolean"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_one_sentence(change: dict[str, object], message: str) -> None:
    arguments = {"cost": torch.rand(2, 3, 4), "mass": 0.3, "sharpness": 5.0, **change}
    with pytest.raises(InputError, match=message):
        partial_transport(**arguments)


def test_reference_refuses_an_unknown_gradient() -> None:
    with pytest.raises(InputError, match="gradient must be one of"):
        paper_iteration(torch.rand(1, 2, 3), 0.3, 5.0, gradient="none")
