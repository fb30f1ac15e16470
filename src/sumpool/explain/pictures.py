"""Explanations as PNG pictures, drawn with matplotlib."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from sumpool.errors import InputError
from sumpool.explain.explanation import Explanation, Pair

PROTOTYPES = 6  # how many of the strongest are shown
LINES = 8  # how many of the strongest pairs of places are joined


def draw_explanation(explanation: Explanation, path: str | Path) -> None:
    """The image, its weights and shares, and under them the strongest prototypes."""
    maps = [("shares in the embedding", explanation.shares, True)]
    if explanation.weights is not None:
        maps.insert(0, ("pooling weights", explanation.weights, False))
    strongest: list[int] = []
    if explanation.prototypes is not None and explanation.attributes is not None:
        strongest = explanation.attributes.argsort(descending=True)[:PROTOTYPES].tolist()
    figure = _figure(10, 5.8 if strongest else 3.6)
    rows = figure.subfigures(2, 1, height_ratios=[2, 1.1]) if strongest else [figure]
    axes = np.atleast_1d(rows[0].subplots(1, 1 + len(maps)))
    _show(axes[0], explanation.image, "image")
    for axis, (title, values, signed) in zip(axes[1:], maps, strict=True):
        rows[0].colorbar(_overlay(axis, explanation.image, values, title, signed), ax=axis, fraction=0.046)
    if strongest:
        _prototypes(rows[1], explanation, strongest)
    _write(figure, path)


def _prototypes(row: Any, explanation: Explanation, strongest: list[int]) -> None:
    assert explanation.prototypes is not None
    assert explanation.attributes is not None
    row.suptitle("strongest prototypes, with their attributes", fontsize=9)
    limit = float(explanation.prototypes.max())
    for axis, number in zip(np.atleast_1d(row.subplots(1, len(strongest))), strongest, strict=True):
        title = f"{number}: {float(explanation.attributes[number]):.3f}"
        _overlay(axis, explanation.image, explanation.prototypes[number], title, False, limit)


def draw_pair(pair: Pair, path: str | Path) -> None:
    """Both images with the shares of their places, lines between the places that fit best, and the prototypes."""
    figure = _figure(10, 4.6)
    figure.suptitle(f"similarity {pair.similarity:.3f}")
    columns = 2 if pair.prototypes is None else 3
    axes = figure.subplots(1, columns, gridspec_kw={"width_ratios": [1, 1, 0.8][:columns]})
    limit = max(float(shares.abs().max()) for shares in (pair.query_shares, pair.result_shares))
    _overlay(axes[0], pair.query, pair.query_shares, "query: shares in the similarity", True, limit)
    drawn = _overlay(axes[1], pair.result, pair.result_shares, "result: shares in the similarity", True, limit)
    figure.colorbar(drawn, ax=axes[:2], fraction=0.03)
    if pair.places is not None:
        _join(figure, axes, pair)
    if pair.prototypes is not None:
        _bars(axes[2], pair.prototypes)
    _write(figure, path)


def _join(figure: Any, axes: Any, pair: Pair) -> None:
    """Lines between the places of the two images whose products are largest; wider means larger."""
    assert pair.places is not None
    patches = import_module("matplotlib.patches")
    best = pair.places.flatten().argsort(descending=True)[:LINES].tolist()
    largest = float(pair.places.max())
    for flat in best:
        here, there = divmod(flat, pair.places.shape[1])
        value = float(pair.places[here, there])
        if value <= 0:
            break
        ends = _centre(here, pair.query_shares, pair.query), _centre(there, pair.result_shares, pair.result)
        figure.add_artist(
            patches.ConnectionPatch(
                *ends, coordsA="data", coordsB="data", axesA=axes[0], axesB=axes[1],
                color="black", linewidth=0.3 + value / largest, arrowstyle="<->",
            )
        )  # fmt: skip


def _centre(place: int, grid: Tensor, image: Image.Image) -> tuple[float, float]:
    """The middle of a place of the grid in pixels of the image."""
    row, column = divmod(place, grid.shape[1])
    return (column + 0.5) * image.width / grid.shape[1], (row + 0.5) * image.height / grid.shape[0]


def _bars(axis: Any, prototypes: Tensor) -> None:
    """Share of the query's strongest prototypes in the similarity, and how much of it meets the same prototype."""
    total = prototypes.sum(1)
    strongest = total.abs().argsort(descending=True)[:PROTOTYPES].tolist()
    heights = range(len(strongest))
    axis.barh(
        heights, [float(total[number]) for number in strongest], color="0.75", label="any prototype of the result"
    )
    same = [float(prototypes[number, number]) for number in strongest]
    axis.barh(heights, same, height=0.4, color="tab:blue", label="the same prototype")
    axis.set_yticks(heights, [str(number) for number in strongest])
    axis.invert_yaxis()
    axis.set_title("the query's prototypes", fontsize=9)
    axis.set_xlabel("share in the similarity", fontsize=8)
    axis.legend(fontsize=7, loc="lower right")


def _show(axis: Any, image: Image.Image, title: str) -> None:
    axis.imshow(image, cmap="gray")
    axis.set_title(title, fontsize=9)
    axis.set_axis_off()


def _overlay(
    axis: Any, image: Image.Image, values: Tensor, title: str, signed: bool, limit: float | None = None
) -> Any:
    """A map over a pale grey copy of the image; signed maps have white for zero."""
    _show(axis, image.convert("L"), title)
    grid = values.detach().float().cpu().numpy()
    limit = float(np.abs(grid).max()) if limit is None else limit
    colours = (
        {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit} if signed else {"cmap": "inferno", "vmin": 0.0, "vmax": limit}
    )
    extent = (-0.5, image.width - 0.5, image.height - 0.5, -0.5)
    return axis.imshow(grid, extent=extent, interpolation="bilinear", alpha=0.65, **colours)


def _figure(width: float, height: float) -> Any:
    """A figure of its own, outside pyplot: no window, no global state."""
    try:
        module = import_module("matplotlib.figure")
    except ImportError as missing:
        raise InputError("pictures need pip install 'sumpool[plot]'") from missing
    return module.Figure(figsize=(width, height), layout="constrained")


def _write(figure: Any, path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
