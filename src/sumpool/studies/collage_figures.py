"""The figures of the collage studies: scores by pooling, and where a pooling looks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from sumpool.embedder import Embedder
from sumpool.explain import explain
from sumpool.studies.figure import BLUE, GREY, VERMILION, new_figure


def draw_scores(results: Mapping[str, Any], losses: Sequence[str], names: Sequence[str], path: Path) -> None:
    """MAP@R with 95 % intervals, poolings in the order of the table; lines at GAP and at distilled GAP."""
    figure = new_figure(4.6 * len(losses), 0.27 * len(names) + 1)
    axes = figure.subplots(1, len(losses), sharex=True, sharey=True, squeeze=False)[0]
    for axis, loss in zip(axes, losses, strict=True):
        found = [results[f"{loss} {name}"]["map@r"] for name in names]
        for height, (name, value) in enumerate(zip(names, found, strict=True)):
            colour = VERMILION if "GSP" in name else GREY
            axis.plot([100 * end for end in value["ci95"]], [height] * 2, color=colour, linewidth=1.5)
            axis.plot(100 * value["mean"], height, "o", color=colour, markersize=4)
        for name, style in (("GAP", ":"), ("distilled GAP", "--")):
            axis.axvline(100 * results[f"{loss} {name}"]["map@r"]["mean"], color=BLUE, linestyle=style, label=name)
        axis.set_title(loss, fontsize=10)
        axis.set_xlabel("MAP@R of unseen classes (%)", fontsize=9)
        axis.grid(axis="x", color="0.92")
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()
    axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def draw_weights(models: Mapping[str, Path], pictures: Sequence[Image.Image], path: Path) -> None:
    """Every picture, and over it the pooling weights of every model, relative to equal weights."""
    embedders = {name: Embedder.load(folder) for name, folder in models.items()}
    figure = new_figure(1.25 * len(pictures) + 1, 1.3 * (1 + len(models)))
    axes = figure.subplots(1 + len(models), len(pictures), squeeze=False)
    for column, picture in enumerate(pictures):
        axes[0, column].imshow(picture)
        for row, embedder in enumerate(embedders.values(), 1):
            weights = explain(embedder, picture).weights
            assert weights is not None
            shown = axes[row, column].imshow(
                (weights * weights.numel()).numpy(), cmap="inferno", vmin=0, vmax=4, interpolation="nearest"
            )
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for axis, name in zip(axes[:, 0], ["collage", *embedders], strict=True):
        axis.set_ylabel(name, fontsize=9)
    figure.colorbar(shown, ax=axes[1:], shrink=0.8, label="weight / equal weight")
    figure.savefig(path, dpi=120)
