"""From results to the numbers of a table: means, intervals, differences to the first method.

The p-values are adjusted (Holm) for comparing several methods with the first, separately for every metric, and for
single models and ensembles.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from sumpool.data.record import Array
from sumpool.evaluation.results import MethodResult
from sumpool.evaluation.statistics import compare, estimate, holm
from sumpool.files import write_atomically
from sumpool.training.summary import WARNING

RESULTS, CSV = "results.json", "scores.csv"


def summarise(results: Sequence[MethodResult]) -> dict[str, Any]:
    """The content of results.json; effect sizes may be infinite, or not a number."""
    first = results[0]
    shape = next(iter(first.single.values())).shape[:-1]
    about: dict[str, Any] = {"protocol": first.protocol, "dataset": first.dataset, "scored on": first.scored_on}
    about |= {"selected on test": first.selected_on_test} | ({"warning": WARNING} if first.selected_on_test else {})
    about |= {
        "folds": len(shape),
        "repeats": shape[0],
        "collections": int(np.prod(shape)),
        "queries": len(first.labels),
    }
    methods = [_method(result) for result in results]
    for kind in ("single", "ensemble"):
        for entry, comparisons in zip(methods[1:], _comparisons(results, kind), strict=True):
            entry.setdefault("comparison", {"to": first.method})[kind] = comparisons
    return {**about, "methods": methods}


def write_summary(folder: Path, results: Sequence[MethodResult]) -> dict[str, Any]:
    """Write results.json and scores.csv; what is in the former is returned."""
    # JSON knows no infinity.
    summary: dict[str, Any] = json.loads(json.dumps(summarise(results)), parse_constant=lambda _: None)
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / RESULTS, (text + "\n").encode())
    write_atomically(folder / CSV, raw_csv(results).encode())
    return summary


def raw_csv(results: Sequence[MethodResult]) -> str:
    """One line per training and metric."""
    file = StringIO()
    fields = ["method", "fold", "repeat", "metric", "value", "scored_on", "selected_on"]
    writer = csv.DictWriter(file, fields, lineterminator="\n")
    writer.writeheader()
    for result in results:
        selected = "test" if result.selected_on_test else "validation"
        about = {"method": result.method, "scored_on": result.scored_on, "selected_on": selected}
        writer.writerows({**about, **entry} for entry in result.raw)
    return file.getvalue()


def _method(result: MethodResult) -> dict[str, Any]:
    """One method's means and raw scores."""
    entry: dict[str, Any] = {"method": result.method, "dim": result.dim, "single": _means(result, result.single)}
    if result.ensemble is None:
        entry |= {"ensemble": None}
    else:
        entry |= {"ensemble dim": result.ensemble_dim, "ensemble": _means(result, result.ensemble)}
    if result.selected_on_test:
        entry["best"] = _best(result)
    return {**entry, "raw": result.raw}


def _means(result: MethodResult, scores: Mapping[str, Array]) -> dict[str, Any]:
    """Metric → mean over collections and queries, its interval, and the published standard deviation."""
    found = {metric: estimate(values, result.labels) for metric, values in scores.items()}
    return {metric: {**value.json(), "std": value.std} for metric, value in found.items()}


def _best(result: MethodResult) -> dict[str, Any]:
    """The training with the best P@1 on the test set, which is what was published: the best of several."""
    scores = {(entry["repeat"], entry["metric"]): entry["value"] for entry in result.raw}
    repeat = max((found for found, metric in scores if metric == "p@1"), key=lambda found: scores[found, "p@1"])
    return {"repeat": repeat, **{metric: scores[repeat, metric] for metric in result.single}}


def _comparisons(results: Sequence[MethodResult], kind: str) -> list[dict[str, Any] | None]:
    """Per method after the first: metric → its difference to the first; None where there are no ensembles."""
    first, *others = results
    base = getattr(first, kind)
    if base is None:
        return [None for _ in others]
    found: list[dict[str, Any] | None] = [{} for _ in others]
    for metric in base:
        compared = [compare(getattr(other, kind)[metric], base[metric], first.labels) for other in others]
        for entry, one, adjusted in zip(found, compared, holm([one.p for one in compared]), strict=True):
            assert entry is not None
            entry[metric] = {
                "difference": one.difference.mean,
                "ci95": [one.difference.low, one.difference.high],
                "p": one.p,
                "p holm": float(adjusted),
                "effect": one.effect,
            }
    return found
