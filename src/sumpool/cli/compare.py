"""`sumpool compare`: which of two runs or methods is better, and whether that can be told at all."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumpool.errors import InputError

if TYPE_CHECKING:
    from sumpool.evaluation.report.groups import Group
    from sumpool.evaluation.results import MethodResult


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    where = "folder of a training run or of a protocol; FOLDER:METHOD where a protocol has several methods"
    parser.add_argument("a", metavar="A", help=where)
    parser.add_argument("b", metavar="B", help="the same; the differences are A − B")


def run(args: argparse.Namespace) -> None:
    """Print the differences, and what follows from them."""
    from rich.console import Console
    from rich.markup import escape

    from sumpool.evaluation.report.groups import group_results
    from sumpool.evaluation.report.sheets import about, warnings

    groups = group_results([_result("B", args.b), _result("A", args.a)])
    if len(groups) > 1:
        raise InputError(_unlike(*(group.first for group in groups)))
    (group,) = groups
    console = Console(highlight=False)
    console.print(escape(f"A: {args.a}\nB: {args.b}\n{group.title}: {about(group)}"))
    for kind in group.kinds:
        _print(console, group, kind)
    for text in warnings(group):
        console.print(escape(text))


def _result(letter: str, text: str) -> "MethodResult":
    """The result that a folder, or FOLDER:METHOD, names."""
    from dataclasses import replace

    from sumpool.evaluation.results import load_results

    folder, method = (text, None) if Path(text).exists() or ":" not in text else text.rsplit(":", 1)
    found = {result.method: result for result in load_results(Path(folder))}
    if method is None and len(found) > 1:
        raise InputError(f"{folder} has several methods, choose one: {', '.join(f'{folder}:{name}' for name in found)}")
    if method is not None and method not in found:
        raise InputError(f"{folder} has no method {method!r}, it has {', '.join(found)}")
    return replace(found[method or next(iter(found))], method=letter)


def _unlike(b: "MethodResult", a: "MethodResult") -> str:
    """Why two results cannot be compared."""
    names = {"dataset": "dataset", "protocol": "protocol", "scored_on": "what is scored"}
    for name, said in names.items():
        if getattr(a, name) != getattr(b, name):
            return f"A and B cannot be compared: {said} is {getattr(a, name)} for A and {getattr(b, name)} for B"
    if a.selected_on_test != b.selected_on_test:
        letter = "A" if a.selected_on_test else "B"
        return f"A and B cannot be compared: only {letter} was selected on the test classes, which flatters it"
    if a.images != b.images:
        ours, theirs = (result.choice or "default settings" for result in (a, b))
        return f"A and B cannot be compared: their images differ, {ours} for A and {theirs} for B"
    return f"A and B cannot be compared: their queries or folds differ, {len(a.labels)} and {len(b.labels)} queries"


def _print(console: Any, group: "Group", kind: str) -> None:
    from rich.table import Table

    from sumpool.evaluation.report.groups import metrics
    from sumpool.evaluation.report.sheets import signed, small, standardised

    b, a = group.methods
    title = "Single models" if kind == "single" else "Ensembles"
    table = Table("metric", "A", "B", "A − B", "95 % interval", "p", "effect", title=title, title_justify="left")
    for metric in metrics(group.first):
        one = a["comparison"][kind][metric]
        means = [f"{100 * method[kind][metric]['mean']:.2f}" for method in (a, b)]
        ends = ", ".join(map(signed, one["ci95"]))
        numbers = signed(one["difference"]), f"[{ends}]", small(one["p"]), standardised(one["effect"])
        table.add_row(metric.upper(), *means, *numbers)
    console.print(table)
    console.print(verdict(group, kind))


def verdict(group: "Group", kind: str) -> str:
    """Which is better, metric by metric, at p < 0.05."""
    from sumpool.evaluation.report.groups import metrics

    found: dict[str, list[str]] = {}
    for metric in metrics(group.first):
        one = group.methods[1]["comparison"][kind][metric]
        better = (
            "no difference can be told" if one["p"] >= 0.05 else f"{'A' if one['difference'] > 0 else 'B'} is better"
        )
        found.setdefault(better, []).append(metric.upper())
    return "; ".join(f"{', '.join(metrics)}: {said}" for said, metrics in found.items()) + "."
