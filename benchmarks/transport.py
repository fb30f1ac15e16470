"""Partial transport, forward and backward, against the paper's iteration.

"closed" is the published 100 steps with the closed-form gradient (Propositions 4.1 and 4.2), "unrolled" the same steps
under automatic differentiation, "converged" the closed form with as many steps as it needs to be as exact as ours (to
1e-6). Costs are float32 distances between 64 or 128 unit prototypes and features of 128-D that lie between a prototype
and noise; sharpness 5. Outputs are pooling weights and attributes, and both receive gradients. Errors are the largest
difference from a float64 solution, relative to the largest entry, of the weights and of the gradient in the cost.
Ratios above 1 mean that ours is faster, or smaller in memory.

Aim: at mass 0.3 at least 2× faster than "closed" and 4× than "unrolled"; at mass 0.9 at least 10× faster than
"converged". The first two hold on nearly every row; single rows fall to 1.7× and 3.6× in some runs, mostly on two
threads, where each of the seven passes over (B,M,N) wakes a sleeping thread. The last is missed: to 1e-6 the iteration
needs 128 to 181 steps there (it converges like μᵏ), not thousands, and both pay for the same exponentials. What bounds
ours: at the smallest size some 250 calls into PyTorch, nearly all on small arrays (the exponential is 0.09 of 0.8 ms in
a profile); at the largest the exponential of (B,M,N), 1.6 of 4.6 ms.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.measure import all_threads, median_seconds, peak_bytes, threads
from sumpool.ops.transport import Transport, partial_transport
from sumpool.ops.transport_reference import paper_iteration
from sumpool.pooling.gsp import prototype_cost

SIZES = [(32, 64, 49), (128, 64, 49), (112, 128, 49), (32, 64, 196), (32, 64, 784)]
SHARPNESS = 5.0
EQUAL = 1e-6

Solver = Callable[[Tensor], Transport]


def run() -> list[dict[str, object]]:
    rows = []
    for mass in (0.3, 0.9):
        for size in SIZES:
            torch.manual_seed(0)
            for count in sorted({1, all_threads()}):
                with threads(count):
                    rows.append(_row(size, mass, count))
    return rows


def _row(size: tuple[int, int, int], mass: float, count: int) -> dict[str, object]:
    cost = _cost(*size)
    upstream = torch.randn(size[0], size[2]), torch.randn(size[0], size[1])
    solvers: dict[str, Solver] = {
        "ours": lambda c: partial_transport(c, mass, SHARPNESS),
        "closed": lambda c: paper_iteration(c, mass, SHARPNESS),
        "unrolled": lambda c: paper_iteration(c, mass, SHARPNESS, gradient="unrolled"),
    }
    truth = _outputs(solvers["ours"], cost.double(), upstream)
    errors = {name: _error(_outputs(solver, cost, upstream), truth) for name, solver in solvers.items()}
    steps = _steps_for(max(EQUAL, errors["ours"]), cost, mass, upstream, truth)
    solvers["converged"] = lambda c: paper_iteration(c, mass, SHARPNESS, steps=steps)
    seconds = median_seconds({name: _task(solver, cost, upstream) for name, solver in solvers.items()})
    memory = {name: peak_bytes(_task(solvers[name], cost, upstream)) for name in ("ours", "closed", "unrolled")}
    return {
        "B×M×N": "×".join(map(str, size)),
        "mass": mass,
        "threads": count,
        "ours ms": f"{1e3 * seconds['ours']:.2f}",
        "× closed": f"{seconds['closed'] / seconds['ours']:.1f}",
        "× unrolled": f"{seconds['unrolled'] / seconds['ours']:.1f}",
        "× converged (steps)": f"{seconds['converged'] / seconds['ours']:.1f} ({steps})",
        "memory MB": f"{memory['ours'] / 1e6:.1f}",
        "memory × closed": f"{memory['closed'] / memory['ours']:.1f}",
        "memory × unrolled": f"{memory['unrolled'] / memory['ours']:.1f}",
        "error": f"{errors['ours']:.0e}",
        "error closed": f"{errors['closed']:.0e}",
        "error unrolled": f"{errors['unrolled']:.0e}",
    }


def _cost(images: int, prototypes: int, features: int) -> Tensor:
    """Distances as a trained layer sees them: every feature is somewhere between a prototype and noise."""
    centres = nn.functional.normalize(torch.randn(prototypes, 128), dim=1)
    noise = nn.functional.normalize(torch.randn(images, features, 128), dim=2)
    nearness = torch.rand(images, features, 1)
    near = centres[torch.randint(prototypes, (images, features))]
    return prototype_cost(nearness * near + (1 - nearness) * noise, centres).contiguous()


def _task(solver: Solver, cost: Tensor, upstream: tuple[Tensor, Tensor]) -> Callable[[], object]:
    leaf = cost.clone().requires_grad_()

    def forward_and_backward() -> object:
        result = solver(leaf)
        return torch.autograd.grad((result.weights, result.attributes), leaf, upstream)

    return forward_and_backward


def _outputs(solver: Solver, cost: Tensor, upstream: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    leaf = cost.clone().requires_grad_()
    result = solver(leaf)
    grads = [grad.to(cost.dtype) for grad in upstream]
    return result.weights.detach(), torch.autograd.grad((result.weights, result.attributes), leaf, grads)[0]


def _error(outputs: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]) -> float:
    pairs = zip(outputs, truth, strict=True)
    return max(float((value - exact).abs().max() / exact.abs().max()) for value, exact in pairs)


def _steps_for(
    error: float, cost: Tensor, mass: float, upstream: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]
) -> int:
    """The fewest steps, in powers of √2, at which the iteration is about as exact as ours."""
    for power in range(7, 24):
        steps = round(2 ** (power / 2))
        outputs = _outputs(partial(paper_iteration, mass=mass, sharpness=SHARPNESS, steps=steps), cost, upstream)
        if _error(outputs, truth) <= error:
            break
    return steps
