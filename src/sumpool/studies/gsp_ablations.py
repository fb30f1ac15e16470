"""GSP ablations: mass μ, prototypes m, sharpness ε, weight λ of L_ZS, and what GSP and L_ZS add (tables 5.3, 5.4).

Command: `sumpool study gsp-ablations --scale cpu --out docs/studies/gsp-ablations` (trainings go to out/gsp-ablations).

Claim: small μ give similar results, large μ fall towards GAP (figure 5.8); GSP and L_ZS each improve C2, both together
most (5.3); in a two-level screening ε matters most, small μ and λ are better, m does not matter (5.4); the best ε is 5
for C2 and 0.5 for PNCA (5.10); any m ≥ 64 does (5.11).

Setting: glyph-collage, 10 images per class, 158 unseen test classes, through a frozen small network that has learned
single letters and symbols of the training classes; a 128-D projection, the prototypes and the loss's proxies are
trained, 400 steps of 16 × 4 images, 2 seeds. Published settings (m 64, μ 0.3, λ 0.1, ε 5 for C2 and 0.5 for PNCA) where
a sweep does not say otherwise. At scale `paper`: CUB, tuning protocol. p-values are adjusted by Holm's method within
each table.

Measured: GSP adds 3.2 [2.4, 3.9] points of MAP@R to C2's 1.3; L_ZS adds nothing, alone or with GSP. The smaller μ, the
better, from 7.5 at μ = 0.05 to GAP's level at 0.9: small μ are not alike here, where a quarter of every image matters.
ε has the largest effect; 20 and 50 are better than 5, and at PNCA's 0.5 GSP hardly selects (1.0 against GAP's 0.9). The
number of prototypes matters little: 0.6 points from 16 to 128 in the screening with C2, nothing with PNCA. A higher λ
costs C2 0.8 points, and PNCA's interval includes zero. The time below is without pauses.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.comparison import shown
from sumpool.studies.curves import Panel, draw_panels, in_points
from sumpool.studies.grid import Grid, judged, train_grid
from sumpool.studies.gsp_ablation_plan import (
    COMPONENTS,
    FACTORS,
    SYMBOLS,
    Levels,
    configurations,
    levels,
    screened,
)
from sumpool.studies.gsp_setting import scored_part
from sumpool.training.factorial import design

ALIKE = 0.01
SURE = 0.05
BEST = {"C2": 5.0, "PNCA": 0.5}


def gsp_ablations(call: Call) -> Outcome:
    """GSP ablations: μ, m × ε, m, a two-level screening, and GSP with and without L_ZS."""
    plan = levels(call)
    configs = configurations(call, plan)
    grid = train_grid(configs, call.pick(1, 2, 3), call.work, call.jobs, ("map@r",), scored_part(call))
    results = grid.results()
    tables = {
        "components": grid.differences(
            [("GSP", "neither"), ("L_ZS", "neither"), ("GSP and L_ZS", "GSP"), ("GSP and L_ZS", "L_ZS")], "map@r"
        ),
        "mass": grid.differences([(f"C2 μ {mass:g}", "C2 GAP") for mass in plan.masses], "map@r"),
        "effects": effects(grid, plan),
    }
    checks = judge(results, tables, plan)
    draw_panels(panels(results, tables["effects"], plan), call.out / "ablations.png")
    return Outcome(
        {
            **results,
            "difference": {"map@r": tables["components"]["GSP − neither"]},
            "differences": tables,
            "checks": checks,
        },
        body(results, tables, plan),
        judged(checks),
        reason(checks, tables),
    )


def effects(grid: Grid, plan: Levels) -> dict[str, Any]:
    """Of every factor: MAP@R of the half of the screening at its high level minus that of the other half."""
    halves = {}
    for loss in plan.losses:
        runs = np.stack([grid.scores[name]["map@r"] for name in screened(loss)])
        signs = np.array(design(len(FACTORS)))
        for factor, symbol in enumerate(SYMBOLS):
            for side, word in ((1, "high"), (-1, "low")):
                halves[f"{loss}: {word} {symbol}"] = {"map@r": runs[signs[:, factor] == side].mean(axis=0)}
    pairs = [(f"{loss}: high {symbol}", f"{loss}: low {symbol}") for loss in plan.losses for symbol in SYMBOLS]
    found = Grid(halves, grid.classes).differences(pairs, "map@r")
    return {
        f"{loss} {symbol}": found[f"{loss}: high {symbol} − {loss}: low {symbol}"]
        for loss in plan.losses
        for symbol in SYMBOLS
    }


def judge(results: Mapping[str, Any], tables: Mapping[str, Any], plan: Levels) -> dict[str, bool]:
    """What the text claims, each true or false here."""
    score = {name: found["map@r"]["mean"] for name, found in results.items()}
    return {
        **component_claims(tables["components"]),
        **mass_claims(score, tables["mass"], plan),
        **screening_claims(tables["effects"], plan),
        **grid_claims(score, plan),
    }


def component_claims(differences: Mapping[str, Any]) -> dict[str, bool]:
    """Table 5.3."""
    return {
        "GSP improves C2": gains(differences["GSP − neither"]),
        "L_ZS improves C2": gains(differences["L_ZS − neither"]),
        "both together are best": all(gains(differences[f"GSP and L_ZS − {one}"]) for one in ("GSP", "L_ZS")),
    }


def mass_claims(score: Mapping[str, float], differences: Mapping[str, Any], plan: Levels) -> dict[str, bool]:
    """Figure 5.8."""
    small = [score[f"C2 μ {mass:g}"] for mass in plan.masses if mass <= 0.3]
    return {
        "every μ is better than GAP": all(gains(value) for value in differences.values()),
        "MAP@R falls at large μ": score[f"C2 μ {plan.masses[-1]:g}"] < min(small),
        "small μ are alike": max(small) - min(small) < ALIKE,
    }


def screening_claims(effects: Mapping[str, Any], plan: Levels) -> dict[str, bool]:
    """Table 5.4, each claim for both losses."""
    of = {loss: {symbol: effects[f"{loss} {symbol}"] for symbol in SYMBOLS} for loss in plan.losses}
    sizes = [{symbol: abs(effect["mean"]) for symbol, effect in found.items()} for found in of.values()]
    return {
        "ε has the largest effect": all(found["ε"] == max(found.values()) for found in sizes),
        "small μ is better": all(found["μ"]["ci95"][1] < 0 for found in of.values()),
        "small λ is better": all(found["λ"]["ci95"][1] < 0 for found in of.values()),
        "m does not matter": all(found["m"]["p by Holm"] > SURE for found in of.values()),
    }


def grid_claims(score: Mapping[str, float], plan: Levels) -> dict[str, bool]:
    """Figures 5.10 and 5.11."""
    found = {}
    for loss in plan.losses:
        best = {e: max(score[f"{loss} m {m} ε {e:g}"] for m in plan.prototypes) for e in plan.sharpnesses}
        found[f"best ε with {loss} is {BEST[loss]:g}"] = best.get(BEST[loss]) == max(best.values())
        many = [score[f"{loss} m {m}"] for m in plan.numbers if m >= 64]
        found[f"m ≥ 64 are alike with {loss}"] = max(many) - min(many) < ALIKE
    return found


def gains(difference: Mapping[str, Any]) -> bool:
    """Whether a difference is positive beyond doubt."""
    return bool(difference["mean"] > 0 and difference["p by Holm"] < SURE)


def reason(checks: Mapping[str, bool], tables: Mapping[str, Any]) -> str:
    """The claims that were found and those that were not."""
    held = "; ".join(name for name, holds in checks.items() if holds) or "nothing"
    missed = "; ".join(name for name, holds in checks.items() if not holds) or "nothing"
    gain = tables["components"]["GSP − neither"]
    return f"GSP adds {shown(gain)} points of MAP@R to C2. Found as claimed: {held}. Not found: {missed}."


def panels(results: Mapping[str, Any], effect: Mapping[str, Any], plan: Levels) -> list[Panel]:
    """All sweeps."""

    def curve(names: list[str]) -> list[dict[str, Any]]:
        return [in_points(results[name]["map@r"]) for name in names]

    gap = {loss: {"GAP": 100 * results[f"{loss} GAP"]["map@r"]["mean"]} for loss in plan.losses}
    value = "MAP@R (%)"
    masses = {"GSP": curve([f"C2 μ {mass:g}" for mass in plan.masses])}
    grids = [
        Panel(
            f"m × ε, {loss}",
            "sharpness ε",
            plan.sharpnesses,
            {f"m = {m}": curve([f"{loss} m {m} ε {e:g}" for e in plan.sharpnesses]) for m in plan.prototypes},
            value,
            gap[loss],
        )
        for loss in plan.losses
    ]
    numbers = {loss: curve([f"{loss} m {m}" for m in plan.numbers]) for loss in plan.losses}
    screens = {loss: [in_points(effect[f"{loss} {symbol}"]) for symbol in SYMBOLS] for loss in plan.losses}
    names = list(COMPONENTS)
    return [
        Panel("μ, C2 (figure 5.8)", "mass μ", plan.masses, masses, value, gap["C2"]),
        *grids,
        Panel("number of prototypes (5.11)", "m", plan.numbers, numbers, value),
        Panel(
            "screening (table 5.4)", "factor", SYMBOLS, screens, "effect, points of MAP@R", {"none": 0.0}, joined=False
        ),
        Panel("components, C2 (table 5.3)", "", names, {"C2": curve(names)}, value, joined=False),
    ]


def body(results: Mapping[str, Any], tables: Mapping[str, Any], plan: Levels) -> str:
    """Figure and tables."""
    differences = [
        {"difference": name, "points of MAP@R": shown(value), "p by Holm": f"{value['p by Holm']:.2g}"}
        for table in ("components", "mass")
        for name, value in tables[table].items()
    ]
    screening = [
        {"factor": symbol, "low → high": " → ".join(f"{level:g}" for level in factor.levels)}
        | {loss: shown(tables["effects"][f"{loss} {symbol}"]) for loss in plan.losses}
        | {f"{loss}: p by Holm": f"{tables['effects'][f'{loss} {symbol}']['p by Holm']:.2g}" for loss in plan.losses}
        for symbol, factor in zip(SYMBOLS, FACTORS.values(), strict=True)
    ]
    scores = [{"training": name, "MAP@R": shown(value["map@r"])} for name, value in results.items()]
    return f"""![MAP@R over μ, m and ε, effects of the screening, and components](ablations.png)

Bars are 95 % intervals over seeds and test classes.

{markdown_table(differences)}

Main effects of the screening, in points of MAP@R:

{markdown_table(screening)}

{markdown_table(scores)}"""
