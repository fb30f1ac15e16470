"""Figures of the CCP studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sumpool.data.record import Array
from sumpool.evaluation.trial import Embedded
from sumpool.retrieval import class_geometry
from sumpool.studies.ccp_arms import BATCHES, POOLS, PROXIES, cell
from sumpool.studies.ccp_record import Moment
from sumpool.studies.figure import COLOURS, new_figure
from sumpool.training.run import Run

MOST = 600  # points in a panel; more only cover one another


def draw_plane(moments: Sequence[Moment], best: Embedded, path: Path, panels: int = 3) -> None:
    """Test images and proxies when the first, the last and a middle problem ended, and those of the best model."""
    chosen = np.unique(np.linspace(1, len(moments) - 1, panels).astype(int))
    ended = [(int(number), moments[number]) for number in chosen]
    figure = new_figure(4.2 * (len(ended) + 1), 5.2)
    axes = figure.subplots(1, len(ended) + 1, sharex=True, sharey=True, squeeze=False)[0]
    for axis, (number, moment) in zip(axes, ended, strict=False):
        _digits(axis, moment.vectors, best.labels)
        _proxies(axis, moment.ended, "s", "proxies the problem ended with")
        _proxies(axis, moment.fresh, "o", "proxies of the next problem")
        _title(axis, f"end of problem {number}", moment.vectors, best)
    _digits(axes[-1], best.vectors, best.labels)
    _title(axes[-1], "best model", best.vectors, best)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


def _digits(axis: Any, vectors: Tensor, labels: Tensor) -> None:
    """Every image as the number of its class."""
    chosen = np.linspace(0, len(labels) - 1, min(MOST, len(labels))).astype(int)
    for label in labels.unique().tolist():
        x, y = vectors[chosen][labels[chosen] == label].T.numpy()
        axis.scatter(x, y, s=26, marker=f"${label}$", color=COLOURS[label % len(COLOURS)], linewidths=0.3, alpha=0.7)
    axis.set_box_aspect(1)
    axis.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xlabel="first coordinate", ylabel="second coordinate")
    axis.label_outer()


def _proxies(axis: Any, points: Tensor, marker: str, name: str) -> None:
    x, y = points.flatten(0, 1).T.numpy()
    inside = "none" if marker == "o" else "black"
    axis.scatter(x, y, s=34, marker=marker, facecolors=inside, edgecolors="black", linewidths=1.1, label=name, zorder=3)


def _title(axis: Any, name: str, vectors: Tensor, best: Embedded) -> None:
    score = best._replace(vectors=vectors).metrics(("map@r",), "euclidean")["map@r"]
    radius = float(class_geometry(vectors, best.labels).covering_radius.mean())
    axis.set_title(f"{name}\nMAP@R {100 * score:.1f}, covering radius {radius:.3f}", fontsize=11)


def draw_curves(folders: Mapping[str, Sequence[Path]], radii: Mapping[str, Array], path: Path) -> None:
    """Validation score over the steps, covering radius of the pools over the problems, and of every test class."""
    figure = new_figure(15, 4.2)
    score, pool, classes = figure.subplots(1, 3)
    for colour, (name, some) in zip(COLOURS, folders.items(), strict=False):
        runs = [Run(folder).entries() for folder in some]
        steps = [entry["step"] for entry in runs[0]]
        values = 100 * np.array([[entry["map@r"] for entry in run] for run in runs])
        score.plot(steps, values.mean(0), color=colour, label=name)
        score.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
        _per_problem(pool, runs, colour, name)
        _bars(classes, radii[name], colour, name, (list(folders).index(name) - 1) * 0.27)
    score.set(xlabel="step", ylabel="validation MAP@R (mean and range of the seeds)")
    pool.set(xlabel="problem", ylabel="covering radius of the pools")
    pool.set_ylim(0, 1.4 * pool.get_ylim()[1])
    pool.xaxis.get_major_locator().set_params(integer=True)
    classes.set(xlabel="class", ylabel="covering radius of its test images (± std)", xticks=range(radii[name].shape[1]))
    for axis in (score, pool, classes):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _per_problem(axis: Any, runs: Sequence[Sequence[Mapping[str, Any]]], colour: str, name: str) -> None:
    """Radius by the old proxies (dashed) and with the new ones (solid); the first problem had no old ones."""
    keys = {"covering radius before": ("--", "by the old proxies"), "covering radius after": ("-", "with the new ones")}
    last = max(int(run[-1]["problem"]) for run in runs)
    for key, (style, what) in keys.items():
        found = {
            n: [e[key] for run in runs for e in run if e["problem"] == n and e["problem steps"]]
            for n in range(2, last + 1)
        }
        if found:
            axis.plot(
                list(found),
                [np.mean(v) for v in found.values()],
                style,
                color=colour,
                marker=".",
                label=f"{name}, {what}",
            )


def _bars(axis: Any, radii: Array, colour: str, name: str, offset: float) -> None:
    places = np.arange(radii.shape[1]) + offset
    spread = radii.std(0, ddof=1) if len(radii) > 1 else None
    axis.bar(places, radii.mean(0), 0.25, yerr=spread, color=colour, label=name, error_kw={"elinewidth": 0.8})


def draw_proxies(results: Mapping[str, Any], path: Path) -> None:
    """Left the trials of the search over λ and K, right the grid of pool sizes and K."""
    figure = new_figure(11, 4.2)
    left, right = figure.subplots(1, 2)
    found = results["search"]
    x, y, score = (np.array([trial[key] for trial in found]) for key in ("pull", "proxies", "map@r"))
    dots = left.scatter(x, y, c=100 * score, s=90, cmap="viridis", edgecolors="black", linewidths=0.6)
    left.scatter(x[:1], y[:1], s=260, facecolors="none", edgecolors=COLOURS[1], linewidths=2, label="best")
    left.set(xscale="log", xlabel="λ", ylabel="proxies per class K", title="Bayesian search (validation)")
    left.legend()
    left.grid(alpha=0.3)
    figure.colorbar(dots, ax=left, label="MAP@R")
    means = 100 * np.array([[results[cell(k, b)]["map@r"]["mean"] for b in POOLS] for k in PROXIES])
    shades = right.imshow(means, cmap="viridis", origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(means):
        ink = "black" if value > (means.min() + means.max()) / 2 else "white"
        right.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink)
    right.set_xticks(range(len(POOLS)), ["1 (random)", *map(str, POOLS[1:])])
    right.set_yticks(range(len(PROXIES)), PROXIES)
    right.set(xlabel="pool size b", ylabel="proxies per class K", title="pool × proxies (test)")
    figure.colorbar(shades, ax=right, label="MAP@R")
    figure.savefig(path, dpi=120)


def draw_alternation(results: Mapping[str, Any], path: Path) -> None:
    """Alternating against one problem, steps per problem, and the batch size."""
    figure = new_figure(14, 4.2)
    left, middle, right = figure.subplots(1, 3)
    names = ("contrastive", "one problem", "CCP")
    for end, colour, label in (
        ("", COLOURS[0], "as in the other panels"),
        (", longer", COLOURS[1], "three times as many steps"),
    ):
        shifted = np.arange(3) + (0.1 if end else -0.1)
        _errorbars(left, shifted, [results[name + end]["map@r"] for name in names], colour, label, line="none")
    left.legend()
    left.set_xticks(range(3), names)
    left.set(xlim=(-0.5, 2.5), ylabel="MAP@R (95 % interval)", title="alternation")
    middle.hist(results["steps per problem"], bins=12, color=COLOURS[0], edgecolor="white")
    middle.set(xlabel="steps of a problem of CCP", ylabel="problems", title="lengths of the problems")
    for name, colour, line in (("contrastive", COLOURS[1], "--"), ("CCP", COLOURS[0], "-")):
        _errorbars(right, BATCHES, [results[f"{name}, batch {size}"]["map@r"] for size in BATCHES], colour, name, line)
    right.set_xscale("log", base=2)
    right.set_xticks(BATCHES, BATCHES)
    right.set(xlabel="batch size", ylabel="MAP@R (95 % interval)", title="batch size")
    right.legend()
    for axis in (left, middle, right):
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _errorbars(axis: Any, places: Any, values: Sequence[Mapping[str, Any]], colour: str, name: str, line: str) -> None:
    means = 100 * np.array([value["mean"] for value in values])
    ends = 100 * np.array([value["ci95"] for value in values]).T
    reach = np.abs(ends - means)
    axis.errorbar(places, means, reach, color=colour, label=name, linestyle=line, marker="o", capsize=4)
