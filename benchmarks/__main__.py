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

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BENCHMARKS = ["transport", "poolings", "step", "losses", "data", "retrieval", "training", "features"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    for name in parser.parse_args().names or BENCHMARKS:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARKS)}")
        module = import_module(f"benchmarks.{name}")
        rows = module.run()
        result = {
            "machine": machine(),
            "date": datetime.date.today().isoformat(),
            "about": inspect.getdoc(module),
            "rows": rows,
        }
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(section(name, result))
    saved = [name for name in BENCHMARKS if (HERE / "results" / f"{name}.json").exists()]
    sections = [section(name, json.loads((HERE / "results" / f"{name}.json").read_text())) for name in saved]
    PAGE.write_text("\n".join(["# Benchmarks\n", "Written by `make bench`; do not edit by hand.\n", *sections]))


def section(name: str, result: dict[str, object]) -> str:
    """One benchmark as Markdown."""
    rows = result["rows"]
    assert isinstance(rows, list)
    columns = list(rows[0])
    lines = [f"## {name}\n", f"{result['about']}\n", f"*{result['machine']}; {result['date']};*"]
    lines += [f"*`python -m benchmarks {name}`*\n", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(str(row[column]) for column in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


main()
