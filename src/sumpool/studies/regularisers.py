"""Regularisers of class centres × losses × dimension: does pushing the farthest centres apart help (skewed means)?

Command: `sumpool study regularisers --scale cpu --out docs/studies/regularisers` (trainings go to out/regularisers).

Claim: regularisers that are skewed means of centre similarities or distances (R1, R2, far-push) improve Recall@1 of
proxy and pair losses; letting the farthest pairs push is better than the energies (UniformFace, MHE), which let the
nearest push; results are stable for 128 dimensions and more, and depend on λ and δ.

Setting: letters of `glyphs`, 158 training and 158 unseen test classes of 10 images; a linear map is learned on average-
pooled features of a small frozen network that was trained on symbols (and two of the training letters); AdamW, lr 1e-3,
proxies × 100, 400 steps of 32 × 2 images, 2 seeds. 128-D and weight 1 unless a sweep says otherwise. At scale `paper`:
CUB, BN-Inception, 512-D, 40 epochs. All comparisons with the plain loss are adjusted together by Holm's method.

Measured: only N-pair gains beyond doubt, from what pushes the nearest centres: R1 4.8, MHE 3.7, R2 3.3 points of
Recall@1. Far-push is the opposite of what is claimed, if anything: −1.9, −1.0 and −2.8 points with Proxy-NCA, MS and
N-pair, none beyond doubt by Holm's method, and over λ from −16 (nearest push) to 16 (farthest) Proxy-Anchor falls by
0.5. From 128 to 1024-D far-push rises by 1 point, as the plain loss does. δ is a constant of R1 and cannot matter. Why
so little: the centres do spread, but between and within unseen classes distances shrink alike.
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
GAIN = "Recall@1 minus plain loss"


def regularisers(call: Call) -> Outcome:
    """Regularisers of class centres with six losses, over dimensions, weights, λ and δ (skewed means)."""
    plan = sweeps(call)
    configs = configurations(setting(call), plan)
    grid = train_grid(configs, call.pick(1, 2, 3), call.work, call.jobs, RECALLS)
    results = grid.results()
    pairs = [(f"{loss} {name}", f"{loss} none") for loss in plan.losses for name in REGULARISERS]
    gains = grid.differences(pairs, "r@1")
    sweep = grid.differences([(name, f"{FIRST} none") for name in swept(plan)], "r@1")
    far = grid.differences([(f"{FIRST} far-push", f"{FIRST} {name}") for name in ENERGIES], "r@1")
    geometry = {name: spread(configs[f"{FIRST} {name}"], call.work) for name in ("none", *REGULARISERS)}
    checks = judge(grid, plan, gains, far)
    draw_panels(loss_panels(gains, plan.losses), call.out / "losses.png")
    draw_panels([*dimension_panels(results, plan), *sweep_panels(sweep, plan)], call.out / "sweeps.png")
    difference = {"r@1": gains[f"{FIRST} far-push − {FIRST} none"]}
    differences = {**sweep, **gains, **far}
    numbers = {**results, "difference": difference, "differences": differences, "geometry": geometry, "checks": checks}
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


def swept(plan: Sweeps) -> list[str]:
    """Names of the trainings with another weight, λ or δ than usual, or the usual one written out."""
    weights = [f"{FIRST} {name} weight {weight:g}" for name in REGULARISERS for weight in plan.weights]
    skews = [f"{FIRST} {name} λ {skew:g}" for name, values in plan.skews.items() for skew in values]
    return [*weights, *skews, *(f"{FIRST} R1 δ {margin:g}" for margin in plan.margins)]


def loss_panels(gains: Mapping[str, Any], losses: Sequence[str]) -> list[Panel]:
    """What every regulariser adds to Recall@1, a panel per loss."""
    names = list(REGULARISERS)
    curves = {loss: [in_points(gains[f"{loss} {name} − {loss} none"]) for name in names] for loss in losses}
    return [
        Panel(loss, "", names, {"with regulariser": curve}, GAIN, {"plain loss": 0.0}, joined=False)
        for loss, curve in curves.items()
    ]


def dimension_panels(results: Mapping[str, Any], plan: Sweeps) -> list[Panel]:
    """Recall@1 over the length of the embedding."""
    labels = {"none": "plain loss", "R1": "R1", "far-push": "far-push"}
    return [
        Panel(
            f"dimension, {loss}",
            "length of the embedding",
            plan.dims,
            {
                label: [in_points(results[f"{loss} {name} {size}-D"]["r@1"]) for size in plan.dims]
                for name, label in labels.items()
            },
            "Recall@1 (%)",
        )
        for loss in (FIRST, "MS")
    ]


def sweep_panels(sweep: Mapping[str, Any], plan: Sweeps) -> list[Panel]:
    """What regularisers add to Recall@1 over weights, λ and δ."""

    def panel(title: str, label: str, ticks: tuple[float, ...], names: Sequence[str]) -> Panel:
        curves = {
            name: [in_points(sweep[f"{FIRST} {name} {label} {tick:g} − {FIRST} none"]) for tick in ticks]
            for name in names
        }
        return Panel(f"{title}, {FIRST}", label, ticks, curves, GAIN, {"plain loss": 0.0})

    return [
        panel("weight of the regulariser", "weight", plan.weights, list(REGULARISERS)),
        *(panel(f"λ of {name}", "λ", values, [name]) for name, values in plan.skews.items()),
        panel("δ of R1", "δ", plan.margins, ["R1"]),
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

Points of Recall@1 that a regulariser adds; bars are 95 % intervals over seeds and test classes. Trainings with the same
seed share initial weights and batches, so differences are taken seed by seed.

{markdown_table(recalls)}

![Recall@1 over dimensions, weights, λ and δ](sweeps.png)

δ is a constant in R1, (1/γ) log Σ e^γ(s−δ) = (1/γ) log Σ e^γs − δ, so it cannot change the training.

What the regularisers do to {FIRST}: distances on the unit sphere between its centres after training, and between and
within the unseen test classes (first seed).

{markdown_table(spreads)}"""
