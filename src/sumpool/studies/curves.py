"""Curves with intervals: what sweeps are drawn with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sumpool.studies.figure import COLOURS, new_figure

# Okabe and Ito's colours, and markers, so that curves are told apart without colour.
STYLES = list(zip(COLOURS, "os^DvP*X", strict=True))


class Panel(NamedTuple):
    """Curves over a setting: per name the values at `ticks`, numbers or a mean with its interval."""

    title: str
    label: str
    ticks: Sequence[Any]
    curves: Mapping[str, Sequence[Any]]
    value: str
    lines: Mapping[str, float] = {}
    """Horizontal lines for comparison."""
    log: bool = False
    """Whether the values are drawn on a logarithmic scale."""
    joined: bool = True
    """Whether a line joins the values; not where the ticks are names."""


def in_points(value: Mapping[str, Any]) -> dict[str, Any]:
    """A mean and its interval in percent."""
    return {"mean": 100 * value["mean"], "ci95": [100 * end for end in value["ci95"]]}


def draw_panels(panels: Sequence[Panel], path: Path, columns: int = 3) -> None:
    """The panels in rows of `columns`; settings are at equal distances, since most are doubled from tick to tick."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(4.2 * columns, 3.3 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        draw_panel(axis, panel)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.savefig(path, dpi=110)


def draw_panel(axis: Any, panel: Panel) -> None:
    """One panel: a marker per tick, a bar for its interval; curves stand side by side, so that bars do not overlap."""
    for row, (name, values) in enumerate(panel.curves.items()):
        apart = 0.15 if not panel.joined else 0.05 if isinstance(values[0], Mapping) else 0
        colour, marker = STYLES[row % len(STYLES)]
        places = [tick + apart * (row - (len(panel.curves) - 1) / 2) for tick in range(len(values))]
        middle = [value["mean"] if isinstance(value, Mapping) else value for value in values]
        line = "-" if panel.joined else "none"
        axis.plot(places, middle, linestyle=line, marker=marker, color=colour, label=name, markersize=5)
        for place, value in zip(places, values, strict=True):
            if isinstance(value, Mapping):
                axis.plot([place] * 2, value["ci95"], color=colour, linewidth=1.2)
    for (name, height), style in zip(panel.lines.items(), ("--", ":", "-."), strict=False):
        axis.axhline(height, color="0.4", linestyle=style, label=name, linewidth=1)
    if panel.log:
        axis.set_yscale("log")
    axis.set_xticks(range(len(panel.ticks)), [f"{tick:g}" if isinstance(tick, float) else tick for tick in panel.ticks])
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.label, fontsize=9)
    axis.set_ylabel(panel.value, fontsize=9)
    axis.set_xlim(-0.5, len(panel.ticks) - 0.5)
    axis.tick_params(labelsize=8)
    axis.grid(color="0.92")
    axis.set_axisbelow(True)
    axis.legend(fontsize=8)
