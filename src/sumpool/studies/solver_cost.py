"""What a transport solver costs: seconds forward and backward, bytes kept in between, and distance from the truth.

Shape letters: B images, M prototypes, N local features.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sumpool.ops.transport import Transport
from sumpool.pooling.gsp import prototype_cost

Solver: TypeAlias = Callable[[Tensor], Transport]


class Cost(NamedTuple):
    """Of one forward and backward pass."""

    forward: float
    """Milliseconds, the fastest of several passes."""
    backward: float
    """Milliseconds, the fastest of several passes."""
    kept: float
    """Megabytes that the forward pass keeps for the backward pass, besides the cost matrix itself."""
    error: float
    """Largest difference of weights and gradient from the solution in float64, relative to their largest entry."""


class Problem(NamedTuple):
    """A cost (B,M,N) and the gradients that come back to the weights (B,N) and the attributes (B,M)."""

    cost: Tensor
    upstream: tuple[Tensor, Tensor]


def random_problem(images: int, prototypes: int, features: int, seed: int = 0) -> Problem:
    """Distances as a trained layer sees them: every feature lies somewhere between a prototype and noise, in 128-D."""
    generator = torch.Generator().manual_seed(seed)
    centres_MD = normalize(torch.randn(prototypes, 128, generator=generator), dim=1)
    noise_BND = normalize(torch.randn(images, features, 128, generator=generator), dim=2)
    nearness_BN1 = torch.rand(images, features, 1, generator=generator)
    near_BND = centres_MD[torch.randint(prototypes, (images, features), generator=generator)]
    cost_BMN = prototype_cost(nearness_BN1 * near_BND + (1 - nearness_BN1) * noise_BND, centres_MD).contiguous()
    upstream = [torch.randn(images, size, generator=generator) for size in (features, prototypes)]
    return Problem(cost_BMN, (upstream[0], upstream[1]))


def solver_costs(solvers: Mapping[str, Solver], problem: Problem, truth: Solver, rounds: int) -> dict[str, Cost]:
    """The cost of every solver on one thread; they take turns, so that a busy moment of the machine hits all."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    passes: dict[str, list[tuple[float, float]]] = {name: [] for name in solvers}
    for turn in range(rounds + 1):
        for name, solver in solvers.items():
            seconds = timed(solver, problem)
            passes[name] += [seconds] if turn else []  # the first turn warms caches and the allocator
    torch.set_num_threads(threads)
    exact = outputs(truth, Problem(problem.cost.double(), (problem.upstream[0].double(), problem.upstream[1].double())))
    return {
        name: Cost(
            1e3 * min(forward for forward, _ in passes[name]),
            1e3 * min(backward for _, backward in passes[name]),
            kept_bytes(solver, problem.cost) / 1e6,
            max(relative_error(got, true) for got, true in zip(outputs(solver, problem), exact, strict=True)),
        )
        for name, solver in solvers.items()
    }


def timed(solver: Solver, problem: Problem) -> tuple[float, float]:
    """Seconds of one forward pass, and of the fastest of three backward passes.

    The first backward pass after a long forward pass finds colder caches, whatever it computes: the closed form takes
    0.37 ms after 200 steps and 0.27 ms after 5, but 0.23 ms after either when it is repeated.
    """
    leaf = problem.cost.clone().requires_grad_()
    start = time.perf_counter()
    result = solver(leaf)
    forward = time.perf_counter() - start
    backward = []
    for _ in range(3):
        start = time.perf_counter()
        torch.autograd.grad((result.weights, result.attributes), leaf, problem.upstream, retain_graph=True)
        backward.append(time.perf_counter() - start)
    return forward, min(backward)


def outputs(solver: Solver, problem: Problem) -> tuple[Tensor, Tensor]:
    """The weights, and the gradient in the cost."""
    leaf = problem.cost.clone().requires_grad_()
    result = solver(leaf)
    return result.weights.detach(), torch.autograd.grad((result.weights, result.attributes), leaf, problem.upstream)[0]


def kept_bytes(solver: Solver, cost: Tensor) -> int:
    """Bytes of the different tensors that automatic differentiation keeps after the forward pass, without the input."""
    leaf = cost.clone().requires_grad_()
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        solver(leaf)
    kept.pop(leaf.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def relative_error(got: Tensor, true: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((got - true).abs().max() / true.abs().max())
