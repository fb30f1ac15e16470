"""Toy map: which pixels the linear program and the entropic problem keep (figure 1 of the paper, 5.2 of the thesis).

Command: `sumpool study toy --out out/toy` (two seconds).

Setting: a 10×10 map of RGB features with a 5×5 reddish and a 5×5 bluish block on green; prototypes red and blue. Half
of the map is informative, but only the fraction μ = 0.2 is asked for.

Claim: the linear program ignores part of the informative pixels; entropy smoothing does not.

Measured: the linear program keeps 20 of the 50 informative pixels and drops 30; with entropy (ε = 5) all 50 keep at
least half of an equal share of the informative half, and together they hold 99 % of the weight.
"""

from pathlib import Path

import torch
from torch import Tensor

from sumpool.ops.transport import partial_transport
from sumpool.ops.transport_reference import linear_program
from sumpool.pooling.gsp import prototype_cost
from sumpool.studies.base import Call, Outcome, markdown_table
from sumpool.studies.figure import new_figure

SIDE, BLOCK = 10, 5
MASS, SHARPNESS = 0.2, 5.0


def toy(call: Call) -> Outcome:
    """Toy map: the linear program drops informative pixels, entropy keeps them (figure 1 / 5.2)."""
    features, informative = toy_map()
    cost = prototype_cost(features.reshape(1, -1, 3), torch.eye(3)[[0, 2]])
    linear, entropic = linear_program(cost, MASS).weights, partial_transport(cost, MASS, SHARPNESS).weights
    weights = {
        "average pooling": torch.full((SIDE, SIDE), 1 / SIDE**2),
        f"linear program, μ = {MASS}": linear.reshape(SIDE, SIDE),
        f"entropy, μ = {MASS}, ε = {SHARPNESS:g}": entropic.reshape(SIDE, SIDE),
    }
    results = {name: summary(values, informative) for name, values in weights.items()}
    draw(features, weights, call.out / "toy.png")
    _, dropping, keeping = results.values()
    as_claimed = dropping["informative kept"] < dropping["informative"] == keeping["informative kept"]
    body = markdown_table([{"pooling": name, **numbers} for name, numbers in results.items()])
    return Outcome(
        dict(results),
        f"![the map and the pooling weights](toy.png)\n\n{body}",
        "reproduced" if as_claimed else "not reproduced",
        f"The linear program keeps {dropping['informative kept']} of the {dropping['informative']} informative pixels, "
        f"the entropic problem {keeping['informative kept']}.",
    )


def toy_map(seed: int = 0) -> tuple[Tensor, Tensor]:
    """The (10,10,3) map and a (10,10) mask of its informative half: reddish and bluish blocks on green, all noisy."""
    noise = 0.15 * torch.rand(SIDE, SIDE, 3, generator=torch.Generator().manual_seed(seed))
    colours = torch.tensor([0.0, 0.8, 0.0]).repeat(SIDE, SIDE, 1)
    colours[:BLOCK, :BLOCK] = torch.tensor([0.8, 0.0, 0.0])
    colours[BLOCK:, BLOCK:] = torch.tensor([0.0, 0.0, 0.8])
    return colours + noise, colours[..., 1] == 0


def summary(weights: Tensor, informative: Tensor) -> dict[str, float]:
    """How many informative pixels keep at least half of 1/50, and how much weight they hold together."""
    kept = (weights >= 0.5 / informative.sum()) & informative
    return {
        "informative": int(informative.sum()),
        "informative kept": int(kept.sum()),
        "weight on informative": round(float(weights[informative].sum()), 4),
    }


def draw(features: Tensor, weights: dict[str, Tensor], path: Path) -> None:
    """The map and the weights side by side, on one scale, darker = heavier."""
    figure = new_figure(3 * (1 + len(weights)), 3.2)
    axes = figure.subplots(1, 1 + len(weights))
    axes[0].imshow(features.numpy().clip(0, 1))
    axes[0].set_title("feature map")
    heaviest = max(float(values.max()) for values in weights.values())
    for axis, (name, values) in zip(axes[1:], weights.items(), strict=True):
        shown = axis.imshow(values.numpy(), cmap="Greys", vmin=0, vmax=heaviest)
        axis.set_title(name, fontsize=10)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(shown, ax=axes, shrink=0.8, label="pooling weight")
    figure.savefig(path, dpi=120)
