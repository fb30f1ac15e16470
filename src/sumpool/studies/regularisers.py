"""Regularisers of class centres × losses × dimension: does pushing the farthest centres apart help (skewed means)?

Command: `sumpool study regularisers --scale cpu --out docs/studies/regularisers` (trainings go to out/regularisers).

Claim: regularisers that are skewed means of centre similarities or distances (R1, R2, far-push) improve Recall@1 of
proxy and pair losses; letting the farthest pairs push is better than the energies (UniformFace, MHE), which let the
nearest push; results are stable for 128 dimensions and more, and depend on λ and δ.

Setting: letters of `glyphs`, 158 training and 158 unseen test classes of 10 images; a linear map is learned on average-
pooled features of a small frozen network that was trained on symbols (and two of the training letters); AdamW, lr 1e-3,
proxies × 100, 400 steps of 32 × 2 images, 2 seeds. 128-D and weight 1 unless a sweep says otherwise. At scale `paper`:
CUB, BN-Inception, 512-D, 40 epochs. All comparisons with the plain loss are adjusted together by Holm's method.

Measured: not yet.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from sumpool.evaluation.trial import load_embedded
from sumpool.retrieval.geometry import class_geometry
from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.comparison import shown
from sumpool.studies.curves import Panel, draw_panels, in_points
from sumpool.studies.grid import Grid, folders_of, judged, train_grid
from sumpool.studies.regulariser_plan import FIRST, REGULARISERS, Sweeps, configurations, setting, sweeps
from sumpool.training.checkpoint import load_state
from sumpool.training.config import TrainConfig
from sumpool.training.run import LAST

RECALLS = ("r@1", "r@2", "r@4", "r@8")
SKEWED, ENERGIES = ("R1", "R2", "far-push"), ("UniformFace", "MHE")
STABLE = 0.01


def regularisers(call: Call) -> Outcome:
    """Regularisers of class centres with six losses, over dimensions, weights, λ and δ (skewed means)."""
    plan = sweeps(call)
    configs = configurations(setting(call), plan)
    grid = train_grid(configs, call.pick(1, 2, 3), call.work, call.jobs, RECALLS)
    results = grid.results()
    pairs = [(f"{loss} {name}", f"{loss} none") for loss in plan.losses for name in REGULARISERS]
    gains = grid.differences(pairs, "r@1")
    far = grid.differences([(f"{FIRST} far-push", f"{FIRST} {name}") for name in ENERGIES], "r@1")
    geometry = {name: spread(configs[f"{FIRST} {name}"], call.work) for name in ("none", *REGULARISERS)}
    checks = judge(grid, plan, gains, far)
    draw_panels(loss_panels(results, plan.losses), call.out / "losses.png")
    draw_panels(sweep_panels(results, plan), call.out / "sweeps.png")
    numbers = {**results, "difference": {**gains, **far}, "geometry": geometry, "checks": checks}
    return Outcome(numbers, body(results, plan.losses, gains, geometry), judged(checks), reason(gains, far, checks))


def spread(config: TrainConfig, work: Path) -> dict[str, float]:
    """Distances between the centres after training, and between the means of unseen classes, all on the sphere."""
    folder = next(iter(folders_of(config, 1, work)))
    objective = load_state(folder / LAST)["objective"]
    vectors = next(value for name, value in objective.items() if name.endswith("proxies.vectors"))
    centres = class_geometry(normalize(vectors[:, 0], dim=1), torch.arange(len(vectors)))
    test = load_embedded(folder)
    unseen = class_geometry(normalize(test.vectors, dim=1), test.labels)
    return {
        "centres: mean distance": float(centres.inter.mean()),
        "centres: nearest": float(centres.nearest.mean()),
        "unseen classes: mean distance": float(unseen.inter.mean()),
        "unseen classes: nearest": float(unseen.nearest.mean()),
        "unseen classes: within": float(unseen.intra.mean()),
    }


def judge(grid: Grid, plan: Sweeps, gains: Mapping[str, Any], far: Mapping[str, Any]) -> dict[str, bool]:
    """What the text claims, each true or false here."""
    better = [name for name, value in gains.items() if value["mean"] > 0 and value["p by Holm"] < 0.05]
    helped = {loss for loss in plan.losses for name in SKEWED if f"{loss} {name} − {loss} none" in better}
    wide = [float(grid.scores[f"{FIRST} far-push {size}-D"]["r@1"].mean()) for size in plan.dims if size >= 128]
    margins = [grid.scores[f"{FIRST} R1 δ {margin:g}"]["r@1"] for margin in plan.margins]
    return {
        "a skewed mean improves Recall@1 of at least half of the losses": 2 * len(helped) >= len(plan.losses),
        "far-push beats both energies": all(v["mean"] > 0 and v["p by Holm"] < 0.05 for v in far.values()),
        "far-push is stable from 128 dimensions on": max(wide) - min(wide) < STABLE,
        "δ of R1 matters": any(bool((scores != margins[0]).any()) for scores in margins),
    }


def reason(gains: Mapping[str, Any], far: Mapping[str, Any], checks: Mapping[str, bool]) -> str:
    """The numbers behind the verdict."""
    sure = [name for name, value in gains.items() if value["p by Holm"] < 0.05]
    best, value = max(gains.items(), key=lambda item: item[1]["mean"])
    energies = "; ".join(f"{name.removeprefix(FIRST + ' ')}: {shown(found)}" for name, found in far.items())
    held = ", ".join(name for name, holds in checks.items() if holds) or "nothing"
    return (
        f"Of {len(gains)} pairs of loss and regulariser, {len(sure)} differ from the plain loss by Holm's method"
        f"{' (' + ', '.join(sure) + ')' if sure else ''}; the largest gain is {best}, {shown(value)} points of "
        f"Recall@1; {energies}. Found as claimed: {held}."
    )


def loss_panels(results: Mapping[str, Any], losses: Sequence[str]) -> list[Panel]:
    """Recall@1 with every regulariser, a panel per loss."""
    return [
        Panel(
            loss,
            "",
            list(REGULARISERS),
            {"with regulariser": [in_points(results[f"{loss} {name}"]["r@1"]) for name in REGULARISERS]},
            "Recall@1 (%)",
            {"plain loss": 100 * results[f"{loss} none"]["r@1"]["mean"]},
            joined=False,
        )
        for loss in losses
    ]


def sweep_panels(results: Mapping[str, Any], plan: Sweeps) -> list[Panel]:
    """Recall@1 over dimensions, weights, λ and δ."""

    def curve(names: list[str]) -> list[dict[str, Any]]:
        return [in_points(results[name]["r@1"]) for name in names]

    plain = {"plain loss": 100 * results[f"{FIRST} none"]["r@1"]["mean"]}
    dims = [
        Panel(
            f"dimension, {loss}",
            "length of the embedding",
            plan.dims,
            {name: curve([f"{loss} {name} {size}-D" for size in plan.dims]) for name in ("none", "R1", "far-push")},
            "Recall@1 (%)",
        )
        for loss in (FIRST, "MS")
    ]
    weights = {name: curve([f"{FIRST} {name} weight {w:g}" for w in plan.weights]) for name in REGULARISERS}
    skews = [
        Panel(
            f"λ of {name}, {FIRST}",
            "λ",
            values,
            {name: curve([f"{FIRST} {name} λ {skew:g}" for skew in values])},
            "Recall@1 (%)",
            plain,
        )
        for name, values in plan.skews.items()
    ]
    margins = {"R1": curve([f"{FIRST} R1 δ {margin:g}" for margin in plan.margins])}
    return [
        *dims,
        Panel(f"weight, {FIRST}", "weight of the regulariser", plan.weights, weights, "Recall@1 (%)", plain),
        *skews,
        Panel(f"δ of R1, {FIRST}", "δ", plan.margins, margins, "Recall@1 (%)", plain),
    ]


def body(
    results: Mapping[str, Any],
    losses: Sequence[str],
    gains: Mapping[str, Any],
    geometry: Mapping[str, Mapping[str, float]],
) -> str:
    """Figures and tables."""
    recalls = [
        {
            "loss": loss,
            "regulariser": name,
            "Recall@1": shown(results[f"{loss} {name}"]["r@1"]),
            **{f"@{r[2:]}": f"{100 * results[f'{loss} {name}'][r]['mean']:.1f}" for r in RECALLS[1:]},
            "minus plain": shown(gain) if (gain := gains.get(f"{loss} {name} − {loss} none")) else "",
            "p by Holm": f"{gain['p by Holm']:.2g}" if gain else "",
        }
        for loss in losses
        for name in ("none", *REGULARISERS)
    ]
    spreads = [
        {"regulariser": name, **{key: f"{value:.3f}" for key, value in found.items()}}
        for name, found in geometry.items()
    ]
    return f"""![Recall@1 of every loss with every regulariser](losses.png)

Bars are 95 % intervals over seeds and test classes; the dashed line is the loss without a regulariser.

{markdown_table(recalls)}

![Recall@1 over dimensions, weights, λ and δ](sweeps.png)

δ is a constant in R1, (1/γ) log Σ e^γ(s−δ) = (1/γ) log Σ e^γs − δ, so it cannot change the training.

What the regularisers do to {FIRST}: distances on the unit sphere between its centres after training, and between and
within the unseen test classes (first seed).

{markdown_table(spreads)}"""
