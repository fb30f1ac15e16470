"""The tables of a report, before any format: scores with the published ones beside them, and differences."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from sumpool.evaluation.published import Published
from sumpool.evaluation.report.beside import published_beside, setting_remark
from sumpool.evaluation.report.groups import Group, metrics
from sumpool.evaluation.results import MethodResult
from sumpool.training.page import Cell, Number, Row
from sumpool.training.summary import WARNING

MISSING = "–"
SCORES = "Mean ± standard deviation of collections, with 95 % interval; in percent"
ONE_TRAINING = "With one training of a fold, the intervals cover only the choice of queries, not how trainings differ."


class Sheet(NamedTuple):
    """One table."""

    title: str
    caption: str
    rows: Sequence[Row]
    apart: list[str]
    """Columns with numbers that are not ours."""
    notes: list[str]


def warnings(group: Group) -> list[str]:
    """What must be said before any number of the group."""
    found = [WARNING] if group.first.selected_on_test else []
    if group.first.scored_on != "test":
        found.append(f"These are scores on the {group.first.scored_on} classes, not on the test classes.")
    return found + ([ONE_TRAINING] if group.repeats == 1 else [])


def about(group: Group) -> str:
    """How many trainings and queries stand behind the numbers."""
    trainings, classes = sum(len(result.runs) for result in group.results), len(set(group.first.labels.tolist()))
    return (
        f"{_count(len(group.results), 'method')}, {_count(trainings, 'training')}; "
        f"{_count(len(group.first.labels), 'query', 'queries')} of {_count(classes, 'class', 'classes')}."
    )


def score_sheet(group: Group, kind: str) -> Sheet:
    """Means with standard deviation and interval of every method, and the published numbers where there are any."""
    beside = [published_beside(result, kind) for result in group.results]
    order = metrics(group.first)
    places = sorted({place for found in beside for place in found}, key=lambda place: (place[1], order.index(place[0])))
    rows = [
        {
            "method": entry["method"],
            **_scores(result, entry, kind),
            **{_heading(*place): _printed(found.get(place)) for place in places},
            **_sizes(result, kind),
        }
        for result, entry, found in zip(group.results, group.methods, beside, strict=True)
    ]
    title = "Single models" if kind == "single" else f"Ensembles of {group.summary['folds']} models"
    return Sheet(title, SCORES, rows, [_heading(*place) for place in places], _remarks(group.results, beside))


def difference_sheet(group: Group, kind: str) -> Sheet:
    """Every other method against the first, metric by metric; no rows where there is no other."""
    rows = [
        _difference(entry["method"], metric, entry["comparison"][kind][metric])
        for entry in group.methods[1:]
        for metric in metrics(group.first)
    ]
    title = f"Differences to {group.first.method}"
    return Sheet(title, f"{title} in points, with 95 % interval", rows, [], [])


def _scores(result: MethodResult, entry: dict[str, Any], kind: str) -> dict[str, Cell]:
    several = max(next(iter(result.single.values())).shape[:-1]) > 1
    means = {metric.upper(): _mean(entry[kind][metric], several) for metric in metrics(result)}
    best = entry.get("best", {})
    kept = {f"{metric.upper()} best": Number(best[metric], f"{100 * best[metric]:.2f}") for metric in metrics(result)
            if metric in best}  # fmt: skip
    return {**means, **kept}


def _sizes(result: MethodResult, kind: str) -> dict[str, Cell]:
    sizes = {"dim": result.dim if kind == "single" else result.ensemble_dim, "trainings": len(result.runs)}
    return {name: Number(size, str(size)) for name, size in sizes.items()}


def _mean(found: dict[str, Any], several: bool) -> Number:
    std = f" ± {100 * found['std']:.2f}" if several else ""
    low, high = found["ci95"]
    text = f"{100 * found['mean']:.2f}{std}"
    return Number(found["mean"], text, f"[{100 * low:.2f}, {100 * high:.2f}]".replace("-", "−"))


def signed(value: float) -> str:
    """A difference in points, with its sign.

    >>> signed(-0.0123)
    '−1.23'
    """
    return f"{round(100 * value, 2) + 0.0:+.2f}".replace("-", "−")  # + 0.0: no negative zero


def standardised(effect: float) -> str:
    """An effect size, with its sign: infinite for a constant difference, not a number for a single class.

    >>> standardised(0.5), standardised(-math.inf), standardised(math.nan)
    ('+0.50', '−∞', '–')
    """
    if math.isnan(effect):
        return MISSING
    return signed(effect / 100) if math.isfinite(effect) else "∞" if effect > 0 else "−∞"


def small(p: float) -> str:
    """A p-value for people.

    >>> small(0.0312), small(0.00002)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _difference(method: str, metric: str, found: dict[str, Any]) -> dict[str, Cell]:
    low, high = found["ci95"]
    effect = standardised(found["effect"])
    return {
        "method": method,
        "metric": metric.upper(),
        "difference": Number(found["difference"], signed(found["difference"]), f"[{signed(low)}, {signed(high)}]"),
        "p": Number(found["p"], small(found["p"])),
        "p (Holm)": Number(found["p holm"], small(found["p holm"])),
        "effect": effect if effect == MISSING else Number(found["effect"], effect),
    }


def _heading(metric: str, source: str) -> str:
    return f"{metric.upper()} published ({source})"


def _printed(row: Published | None) -> Cell:
    if row is None:
        return MISSING
    std = "" if row.std is None else f" ± {row.std:.2f}"
    return Number(row.value / 100, f"{row.value:.2f}{std}", row.note)


def _remarks(results: list[MethodResult], beside: list[dict[tuple[str, str], Published]]) -> list[str]:
    """Where settings differ, and how published numbers of the conventional protocol were chosen."""
    firsts = [(result, next(iter(found.values()))) for result, found in zip(results, beside, strict=True) if found]
    found = [remark for result, row in firsts if (remark := setting_remark(result, row))]
    if any(row.protocol == "conventional" for _, row in firsts):
        found.append(
            "Published are the best of three trainings; “best” is our training with the best P@1 on the test set."
        )
    return found


def _count(number: int, name: str, names: str = "") -> str:
    return f"{number} {name if number == 1 else names or name + 's'}"
