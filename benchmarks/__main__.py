"""`python -m benchmarks [NAME …]`: run benchmarks, write `results/NAME.json`, rebuild `docs/benchmarks.md`.

A benchmark is a module of this folder with a docstring (what is compared, the aim, what bounds it) and `run()`, which
returns its rows. Without names, all run.
"""

import argparse
import datetime
import inspect
import json
from importlib import import_module
from pathlib import Path

from benchmarks.measure import machine

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BENCHMARKS = ["transport", "poolings", "step", "losses", "data", "retrieval", "training", "features"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--page", action="store_true", help="run nothing, only rebuild the page from saved results")
    args = parser.parse_args()
    for name in args.names or ([] if args.page else BENCHMARKS):
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARKS)}")
        rows = import_module(f"benchmarks.{name}").run()
        result = {"machine": machine(), "date": datetime.date.today().isoformat(), "rows": rows}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(section(name))
    sections = [section(name) for name in BENCHMARKS if (RESULTS / f"{name}.json").exists()]
    PAGE.write_text("\n".join(["# Benchmarks\n", "Written by `make bench`; do not edit by hand.\n", *sections]))


def section(name: str) -> str:
    """One benchmark as Markdown: what its module says, and the saved rows."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    columns = list(result["rows"][0])
    about = inspect.getdoc(import_module(f"benchmarks.{name}"))
    lines = [f"## {name}\n", f"{about}\n", f"*{result['machine']}; {result['date']};*"]
    lines += [f"*`python -m benchmarks {name}`*\n", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(str(row[column]) for column in columns)} |" for row in result["rows"]]
    return "\n".join(lines) + "\n"


main()
