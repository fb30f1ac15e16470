"""What a solver costs is measured, not supposed; the iterated layer is the exact one in the limit."""

from functools import partial

import torch

from sumpool.ops.transport import partial_transport
from sumpool.ops.transport_reference import paper_iteration
from sumpool.pooling import POOLINGS
from sumpool.pooling.gsp import GSP
from sumpool.studies.gradient_iterations import IteratedGSP, iterated_gsp, judge
from sumpool.studies.solver_cost import Cost, kept_bytes, random_problem, relative_error, solver_costs

PROBLEM = random_problem(4, 8, 9)
FEATURES = 9 * 4 * 4  # bytes of a (4,9) array


def iteration(steps: int, gradient: str) -> partial[object]:
    return partial(paper_iteration, mass=0.3, sharpness=5.0, steps=steps, gradient=gradient)


def test_unrolled_steps_are_kept_and_those_of_the_closed_form_are_not() -> None:
    closed = [kept_bytes(iteration(steps, "closed"), PROBLEM.cost) for steps in (5, 50)]
    unrolled = [kept_bytes(iteration(steps, "unrolled"), PROBLEM.cost) for steps in (5, 50)]
    assert closed[0] == closed[1] == (8 + 1) * FEATURES  # plan and residual
    assert unrolled[1] - unrolled[0] >= 45 * FEATURES  # at least the residual of every step


def test_the_cost_matrix_itself_does_not_count() -> None:
    assert kept_bytes(torch.square, PROBLEM.cost) == 0  # type: ignore[arg-type]
    assert kept_bytes(torch.exp, PROBLEM.cost) == 8 * FEATURES  # type: ignore[arg-type]


def test_the_error_is_the_largest_relative_to_the_largest_entry() -> None:
    assert relative_error(torch.tensor([1.0, -3.0]), torch.tensor([1.0, -4.0])) == 0.25


def test_the_error_is_that_of_the_iteration() -> None:
    exact = partial(partial_transport, mass=0.9, sharpness=5.0)
    few, many = (partial(paper_iteration, mass=0.9, sharpness=5.0, steps=steps) for steps in (5, 300))
    costs = solver_costs({"exact": exact, "few": few, "many": many}, PROBLEM, exact, rounds=1)
    assert costs["exact"].error < 1e-5
    assert costs["many"].error < 1e-4
    assert costs["few"].error > 0.01
    assert min(costs["few"].forward, costs["few"].backward) > 0


def test_iterated_gsp_is_gsp_when_it_has_converged() -> None:
    torch.manual_seed(0)
    exact = GSP(6, 4, prototypes=3, memory=0)
    features = torch.randn(2, 6, 3, 3)
    one, many = (IteratedGSP(6, 4, prototypes=3, memory=0, steps=steps) for steps in (1, 200))
    for layer in (one, many):
        layer.load_state_dict(exact.state_dict())
    torch.testing.assert_close(many(features).vector, exact(features).vector)
    assert not torch.allclose(one(features).weights, exact(features).weights, atol=1e-3)


def test_the_iterated_layer_is_known_by_name_only_inside() -> None:
    with iterated_gsp() as name:
        assert POOLINGS[name] is IteratedGSP
    assert name not in POOLINGS


def test_a_claim_that_does_not_hold_is_said_to_fail() -> None:
    costs = {"closed 5": Cost(1, 1, 1, 0), "closed 200": Cost(9, 1.1, 1, 0)}
    costs |= {"unrolled 5": Cost(1, 1, 1, 0), "unrolled 200": Cost(9, 9, 9, 0)}
    near, far = ({"mean": mean, "ci95": [0, 0], "p by Holm": p} for mean, p in ((0.001, 1.0), (-0.2, 0.001)))
    claims = judge(costs, (5, 200), {"k = 1 − exact": far, "k = 25 − exact": near})
    assert all(claims.values())
    worse = {**costs, "closed 200": Cost(9, 2, 2, 0), "unrolled 200": Cost(9, 1, 1, 0)}
    assert not any(judge(worse, (5, 200), {"k = 25 − exact": far}).values())
