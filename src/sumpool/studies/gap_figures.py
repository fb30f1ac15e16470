"""The figures of the GAP analysis.

Shape letters: B images, N local features of an image, M prototypes, C classes, D = 2 dimensions.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumpool.data import Dataset
from sumpool.retrieval.hulls import convex_hull
from sumpool.studies.figure import BLUE, GREY, SKY, VERMILION, new_figure


def draw_plane(
    features_BND: Tensor, shares_BM: Tensor, prototypes_MD: Tensor, error: Tensor, cover: float, path: Path
) -> None:
    """Local features and cells; GAP and PCC of some images; how far apart the two are for all images."""
    figure = new_figure(15, 5.4)
    plane, pairs, counts = figure.subplots(1, 3)
    plane.scatter(*features_BND.flatten(0, 1)[::10].T, s=2, color=SKY, label="local features")
    draw_cells(plane, prototypes_MD)
    plane.set_title(f"{len(prototypes_MD)} prototypes and their cells, δ = {cover:.3f}")
    few = slice(None, None, max(1, len(features_BND) // 40))
    gap_BD, pcc_BD = features_BND[few].mean(1), shares_BM[few] @ prototypes_MD
    pairs.plot(*torch.stack([gap_BD, pcc_BD]).permute(2, 0, 1), color=GREY, linewidth=1)
    pairs.scatter(*gap_BD.T, s=22, color=BLUE, marker="o", label="GAP")
    pairs.scatter(*pcc_BD.T, s=30, color=VERMILION, marker="x", label="PCC")
    pairs.set_title("GAP and PCC of single images")
    counts.hist(error.numpy(), bins=40, color=BLUE)
    counts.axvline(cover, color=VERMILION, linestyle="--", label="δ")
    counts.set(xlabel="‖PCC − GAP‖", ylabel="test images", title=f"all {len(error)} test images")
    for axis in (plane, pairs):
        axis.set(xlabel="first coordinate", ylabel="second coordinate")
        axis.set_aspect("equal", adjustable="datalim")
    for axis in (plane, pairs, counts):
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    figure.savefig(path, dpi=110)


def draw_cells(axis: Any, prototypes_MD: Tensor) -> None:
    """The prototypes, and lines where the nearest one changes."""
    low, high = prototypes_MD.amin(0) - 0.1, prototypes_MD.amax(0) + 0.1
    across, down = (torch.linspace(float(a), float(b), 400) for a, b in zip(low, high, strict=True))
    nearest = torch.cdist(torch.cartesian_prod(across, down), prototypes_MD).argmin(1).reshape(400, 400)
    axis.contour(across, down, nearest.T, levels=np.arange(len(prototypes_MD)) + 0.5, colors=GREY, linewidths=0.5)
    axis.scatter(*prototypes_MD.T, s=28, color="black", marker="s", label="prototypes")


def draw_hulls(features_BND: Tensor, test: Dataset, prototypes_MD: Tensor, active_CM: Tensor, path: Path) -> None:
    """One panel per class: all prototypes, those active for the class with their hull, and its images' GAP."""
    figure = new_figure(15, 6.6)
    panels = figure.subplots(2, -(-len(test.classes) // 2), sharex=True, sharey=True).flat
    for label, (axis, name) in enumerate(zip(panels, test.classes, strict=False)):
        own = prototypes_MD[active_CM[label]]
        axis.scatter(*prototypes_MD.T, s=14, facecolor="none", edgecolor=GREY, marker="s", label="prototypes")
        axis.fill(*np.array(convex_hull(own)).T, color=SKY, alpha=0.35, label="hull of the active")
        axis.scatter(*own.T, s=22, color="black", marker="s", label="active prototypes")
        axis.scatter(*features_BND[test.labels == label].mean(1)[:200].T, s=4, color=VERMILION, label="GAP of images")
        axis.set(title=name)
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    figure.savefig(path, dpi=110)
