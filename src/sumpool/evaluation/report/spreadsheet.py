"""The numbers of a report as CSV: one line per method, embedding and metric, for other programs to read."""

import csv
import math
from collections.abc import Sequence
from io import StringIO
from typing import Any

from sumpool.evaluation.report.beside import published_beside, setting_remark
from sumpool.evaluation.report.groups import Group, metrics
from sumpool.evaluation.report.sheets import standardised
from sumpool.evaluation.results import MethodResult
from sumpool.training.summary import WARNING


def comma_separated(groups: Sequence[Group]) -> str:
    """One line per method, embedding and metric; scores in percent, as published."""
    rows = [
        row
        for group in groups
        for kind in group.kinds
        for number in range(len(group.results))
        for row in _csv_rows(group, kind, number)
    ]
    # Ours first: the reference, which has no difference, comes before methods that have one.
    names = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name.startswith("published"))
    file = StringIO()
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_harmless, rows))
    return file.getvalue()


def _csv_rows(group: Group, kind: str, number: int) -> list[dict[str, Any]]:
    result, entry = group.results[number], group.methods[number]
    common = {
        "dataset": result.dataset, "images": result.choice, "protocol": result.protocol, "scored_on": result.scored_on,
        "remark": WARNING if result.selected_on_test else "", "method": result.method, "embedding": kind,
        "dim": result.dim if kind == "single" else result.ensemble_dim, "trainings": len(result.runs),
        "queries": len(result.labels),
    }  # fmt: skip
    return [
        {
            **common,
            "metric": metric,
            **_percent(entry[kind][metric], "mean"),
            "std": f"{100 * entry[kind][metric]['std']:.4f}",
            **(_compared(entry["comparison"], kind, metric) if number else {}),
            **_published(result, kind, metric),
        }
        for metric in metrics(result)
    ]


def _compared(comparison: dict[str, Any], kind: str, metric: str) -> dict[str, str]:
    found = comparison[kind][metric]
    tests = {name.replace(" ", "_"): f"{found[name]:.6g}" for name in ("p", "p holm")}
    effect = f"{found['effect']:.6g}" if math.isfinite(found["effect"]) else standardised(found["effect"])
    return {"reference": comparison["to"], **_percent(found, "difference"), **tests, "effect": effect}


def _published(result: MethodResult, kind: str, metric: str) -> dict[str, Any]:
    """Printed numbers under names of their own, with what must be known about them."""
    row: dict[str, Any] = {}
    for (name, source), printed in published_beside(result, kind).items():
        if name == metric:
            remarks = [text for text in (printed.note, setting_remark(result, printed)) if text]
            row |= {f"published ({source})": printed.value, f"published std ({source})": printed.std}
            row |= {f"published remark ({source})": "; ".join(remarks)}
    return row


def _percent(found: dict[str, Any], name: str) -> dict[str, str]:
    """A number and the ends of its interval."""
    low, high = found["ci95"]
    values = {name: found[name], f"{name}_low": low, f"{name}_high": high}
    return {key: f"{100 * value:.4f}" for key, value in values.items()}


def _harmless(row: dict[str, Any]) -> dict[str, Any]:
    """The row with names that a spreadsheet does not take for formulas."""
    names = {name: row[name] for name in ("dataset", "images", "method", "reference") if name in row}
    return row | {name: f"'{text}" for name, text in names.items() if text.startswith(("=", "+", "-", "@", "\t", "\r"))}
