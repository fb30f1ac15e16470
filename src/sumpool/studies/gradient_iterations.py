"""Iterations k of the paper's solver: what closed-form gradients save, and how many steps retrieval needs (figure 5.9).

Command: `sumpool study iterations --scale cpu --out docs/studies/iterations` (trainings go to out/iterations).

Claim: with the closed-form gradient the backward pass costs the same for every number k of iterations, with automatic
differentiation time and memory grow with k; results are similar for k ≥ 25.

Setting: time and memory of partial transport alone, 32 images of 49 local features, 64 prototypes, ε = 5, float32, one
thread; memory is what the forward pass keeps for the backward pass. Retrieval: C2 and GSP with L_ZS (m 64, μ 0.3, ε 5)
whose transport is k steps with the closed-form gradient, in training and in testing; glyph-collage, 10 images per
class, through a frozen small network, 3 seeds (at scale `paper`: CUB, tuning protocol). "exact" is sumpool's solution.

Measured: from k = 5 to 200 the backward pass takes 1.0 to 1.1 times as long with the closed form, and 25 to 26 times as
long unrolled, which keeps 7 times as much memory. The forward pass grows with k in both; k = 100 takes 2.4 times as
long as the exact solution. For k ≥ 10 MAP@R is that of the exact solution to 0.01 points. Fewer steps do not hurt here:
k = 2 and k = 5 are 0.4 and 0.1 points better.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from sumpool.ops.transport import Transport, partial_transport
from sumpool.ops.transport_reference import paper_iteration
from sumpool.pooling import POOLINGS
from sumpool.pooling.gsp import GSP, prototype_cost
from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.comparison import shown
from sumpool.studies.curves import Panel, draw_panels, in_points
from sumpool.studies.grid import judged, train_grid
from sumpool.studies.gsp_setting import gsp_setting, scored_part
from sumpool.studies.solver_cost import Cost, Solver, random_problem, solver_costs

SHARPNESS = 5.0
MASSES = (0.3, 0.9)
ENOUGH = 25
SIMILAR = 0.01


class IteratedGSP(GSP):
    """`GSP` whose transport is the paper's k steps with the closed-form gradient."""

    def __init__(
        self,
        in_features: int,
        dim: int | None = None,
        prototypes: int = 64,
        mass: float = 0.3,
        sharpness: float = SHARPNESS,
        *,
        memory: int = 1024,
        steps: int = 100,
    ) -> None:
        super().__init__(in_features, dim, prototypes, mass, sharpness, memory=memory)
        self.steps = steps

    def transport(self, features_BND: Tensor, mask_BN: Tensor | None) -> Transport:
        """The last of k steps."""
        return paper_iteration(prototype_cost(features_BND, self.prototypes), self._mass, self._sharpness, self.steps)


@contextmanager
def iterated_gsp() -> Iterator[str]:
    """The name by which a configuration asks for `IteratedGSP`, in this process only: it is a baseline, not for use."""
    POOLINGS["iterated_gsp"] = IteratedGSP
    try:
        yield "iterated_gsp"
    finally:
        del POOLINGS["iterated_gsp"]


def iterations(call: Call) -> Outcome:
    """Iterations k: time and memory with closed-form and unrolled gradients, and MAP@R against k (figure 5.9)."""
    steps: tuple[int, ...] = call.pick((5, 50), (5, 10, 25, 50, 100, 200), (5, 10, 25, 50, 100, 200))
    trained: tuple[int, ...] = call.pick((1, 25), (1, 2, 5, 10, 25, 50, 100), (1, 2, 5, 10, 25, 50, 100))
    costs = {mass: measure(mass, steps, rounds=call.pick(2, 100, 100)) for mass in MASSES}
    scores, differences = retrieval(call, trained)
    checks = judge(costs[MASSES[0]], steps, differences)
    draw_panels([*cost_panels(costs[MASSES[0]], steps), score_panel(scores, trained)], call.out / "iterations.png", 2)
    results = {
        "costs": {str(mass): {name: cost._asdict() for name, cost in found.items()} for mass, found in costs.items()},
        **scores,
        "difference": {"map@r": differences[f"k = {ENOUGH} − exact"]},
        "differences": differences,
        "checks": checks,
    }
    return Outcome(
        results, body(costs, scores, differences), judged(checks), reason(costs[MASSES[0]], steps, differences)
    )


def measure(mass: float, steps: Sequence[int], rounds: int) -> dict[str, Cost]:
    """The costs of "exact", "closed k" and "unrolled k"."""
    solvers: dict[str, Solver] = {"exact": partial(partial_transport, mass=mass, sharpness=SHARPNESS)}
    for k in steps:
        for gradient in ("closed", "unrolled"):
            solvers[f"{gradient} {k}"] = partial(
                paper_iteration, mass=mass, sharpness=SHARPNESS, steps=k, gradient=gradient
            )
    return solver_costs(solvers, random_problem(32, 64, 49), solvers["exact"], rounds)


def retrieval(call: Call, trained: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """MAP@R of GSP by k steps and of exact GSP, and every k against exact."""
    exact = gsp_setting(call)
    with iterated_gsp() as name:
        configs = {
            f"k = {k}": replace(exact, pooling=name, pooling_settings={**exact.pooling_settings, "steps": k})
            for k in trained
        }
        # In this process, whatever `jobs` says: others do not know the pooling.
        seeds, part = call.pick(1, 3, 3), scored_part(call)
        grid = train_grid({**configs, "exact": exact}, seeds, call.work, 1, ("map@r",), part)
    return grid.results(), grid.differences([(name, "exact") for name in configs], "map@r")


def judge(costs: Mapping[str, Cost], steps: Sequence[int], differences: Mapping[str, Any]) -> dict[str, bool]:
    """What the text claims, each true or false here."""
    few, many = steps[0], steps[-1]
    enough = [value for name, value in differences.items() if int(name.split()[2]) >= ENOUGH]
    return {
        "closed form: backward time flat in k": costs[f"closed {many}"].backward
        < 1.5 * costs[f"closed {few}"].backward,
        "closed form: memory flat in k": costs[f"closed {many}"].kept == costs[f"closed {few}"].kept,
        "unrolled: backward time grows": costs[f"unrolled {many}"].backward > 2 * costs[f"unrolled {few}"].backward,
        "unrolled: memory grows": costs[f"unrolled {many}"].kept > 1.5 * costs[f"unrolled {few}"].kept,
        f"similar results for k ≥ {ENOUGH}": all(
            abs(value["mean"]) < SIMILAR and value["p by Holm"] > 0.05 for value in enough
        ),
    }


def reason(costs: Mapping[str, Cost], steps: Sequence[int], differences: Mapping[str, Any]) -> str:
    """The numbers behind the verdict."""
    few, many = steps[0], steps[-1]
    closed, unrolled = ([costs[f"{gradient} {k}"] for k in (few, many)] for gradient in ("closed", "unrolled"))
    growth = [pair[1].backward / pair[0].backward for pair in (closed, unrolled)]
    exact = costs["exact"].forward + costs["exact"].backward
    widest = max(abs(value["mean"]) for name, value in differences.items() if int(name.split()[2]) >= ENOUGH)
    return (
        f"From k = {few} to {many} the backward pass takes {growth[0]:.1f} times as long with the closed form and "
        f"{growth[1]:.0f} times as long unrolled, which then keeps {unrolled[1].kept:.1f} MB instead of "
        f"{closed[1].kept:.1f}. The forward pass grows with k in both: {many} steps take "
        f"{(closed[1].forward + closed[1].backward) / exact:.0f} times as long as the exact solution. For k ≥ {ENOUGH} "
        f"MAP@R differs from exact by at most {100 * widest:.2f} points."
    )


def cost_panels(costs: Mapping[str, Cost], steps: Sequence[int]) -> list[Panel]:
    """Backward time, total time and memory against k."""
    values = {
        "backward pass": ("ms", lambda cost: cost.backward),
        "forward and backward pass": ("ms", lambda cost: cost.forward + cost.backward),
        "kept for the backward pass": ("MB", lambda cost: cost.kept),
    }
    names = {"unrolled": "unrolled gradient", "closed": "closed-form gradient"}
    return [
        Panel(
            title,
            "iterations k",
            steps,
            {shown: [value(costs[f"{name} {k}"]) for k in steps] for name, shown in names.items()},
            unit,
            {"exact solution": value(costs["exact"])},
            log=unit == "ms",
        )
        for title, (unit, value) in values.items()
    ]


def score_panel(scores: Mapping[str, Any], trained: Sequence[int]) -> Panel:
    """MAP@R against k."""
    curve = [in_points(scores[f"k = {k}"]["map@r"]) for k in trained]
    exact = 100 * scores["exact"]["map@r"]["mean"]
    return Panel("retrieval", "iterations k", trained, {"k iterations": curve}, "MAP@R (%)", {"exact solution": exact})


def body(costs: Mapping[float, Mapping[str, Cost]], scores: Mapping[str, Any], differences: Mapping[str, Any]) -> str:
    """Figure and tables."""
    prices = [
        {
            "μ": mass,
            "solver": name,
            "forward ms": f"{cost.forward:.2f}",
            "backward ms": f"{cost.backward:.2f}",
            "kept MB": f"{cost.kept:.2f}",
            "error": f"{cost.error:.0e}",
        }
        for mass, found in costs.items()
        for name, cost in found.items()
    ]
    found = [
        {
            "transport": name,
            "MAP@R": shown(value["map@r"], 2),
            "minus exact": shown(differences[f"{name} − exact"], 2) if name != "exact" else "",
            "p by Holm": f"{differences[f'{name} − exact']['p by Holm']:.2g}" if name != "exact" else "",
        }
        for name, value in scores.items()
    ]
    return f"""![time, memory and MAP@R against the number of iterations](iterations.png)

Above and lower left: μ = {MASSES[0]}; a lower line is better. Lower right: bars are 95 % intervals.

{markdown_table(found)}

{markdown_table(prices)}

Times are the fastest of 100 passes in one process, the solvers taking turns. The error is the largest difference of
weights and gradient from the exact solution in float64, relative to their largest entry. Differences of MAP@R are taken
seed by seed."""
