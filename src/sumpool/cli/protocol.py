"""`sumpool protocol`: the trainings of a published protocol, and the table a paper would print."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sumpool.cli import train
from sumpool.errors import InputError
from sumpool.registry import lookup

EXAMPLE = """
  fair          4 class folds x repeats; test scores of single models and of the 4 concatenated
  tuning        one range of the training classes held out (1/5, with CCP 1/3), and scored
  conventional  model selection on the test set: old practice, said so in every output

  sumpool protocol fair --dataset cub --method C2 C2+GSP --jobs 2 --out out/cub
  sumpool protocol fair --dataset photos/ --preset cub --method C2 C2+GSP --backbone resnet50

`sumpool list methods` explains the names. All other flags are those of `sumpool train`; they win over the published
settings, and those of a component hold for the methods that have it. A dataset without published settings takes those
of another with --preset; else it follows the rules of the protocol as on CUB, with the losses at their defaults.
The same command again continues; it may name more methods or more repeats.
"""
ENGINES = {"local": ("jobs",), "ray": ("address", "cpus", "gpus")}  # and their own options
METRICS = ("p@1", "p@r", "map@r")


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags of a protocol; the rest are settings of the trainings."""
    parser = argparse.ArgumentParser(
        prog="sumpool protocol",
        usage="sumpool protocol fair|tuning|conventional --dataset DATASET --method NAME … [settings of sumpool train]",
        description="Run a protocol and print its table.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("protocol", metavar="PROTOCOL", help="fair, tuning or conventional")
    names = "such as C2 C2+GSP; differences are to the first, which in a folder with trainings is the first of those"
    parser.add_argument("--method", nargs="+", default=[], metavar="NAME", help=names)
    parser.add_argument("--repeats", type=int, default=3, help="trainings of every fold (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the protocol (default: out/PROTOCOL-DATASET)")
    parser.add_argument("--jobs", type=int, help="trainings side by side here (default: 1)")
    parser.add_argument(
        "--engine", default="local", help="local (default), or ray: a cluster, pip install 'sumpool[ray]'"
    )
    parser.add_argument("--address", help="of the Ray cluster (default: the one running on this machine)")
    parser.add_argument("--cpus", type=float, help="of Ray, per training (default: 1)")
    parser.add_argument("--gpus", type=float, help="of Ray, per training (default: 0)")
    args, rest = parser.parse_known_args(argv)
    runs = train.parse(rest)
    if runs.resume or runs.print_config or runs.protocol:
        raise InputError(
            "a protocol takes no --resume, --print-config or --protocol: the same command again continues it"
        )
    args.given, args.command = runs.given, shlex.join(["sumpool", "protocol", *argv])
    return args


def run(args: argparse.Namespace) -> None:
    """Train what is missing, then write the scores and print the table."""
    from sumpool.evaluation.protocol import create_protocol, run_protocol
    from sumpool.evaluation.results import load_results
    from sumpool.evaluation.summary import write_summary

    protocol = create_protocol(args.protocol, args.method, args.given, args.repeats, args.command)
    name = re.sub(r"[^\w.-]+", "-", Path(protocol.dataset).name)
    folder = args.out or Path("out") / f"{protocol.kind}-{name}"
    try:
        run_protocol(folder, protocol, engine(args))
    except KeyboardInterrupt:
        print(f"stopped with everything saved in {folder}; the same command continues", file=sys.stderr)
        raise
    show(write_summary(folder, load_results(folder)))
    print(folder / "results.json")


def engine(args: argparse.Namespace) -> Callable[..., None]:
    """Where the trainings run."""
    from sumpool.evaluation.engines import run_trials

    own = lookup("engine", ENGINES, args.engine)
    given = {name: vars(args)[name] for names in ENGINES.values() for name in names if vars(args)[name] is not None}
    for name, value in given.items():
        if name not in own:
            raise InputError(
                f"--{name} {value} has no meaning for --engine {args.engine}: leave it away, or change the engine"
            )
    if args.engine == "local":
        return partial(run_trials, **given)
    from sumpool.evaluation.ray_engine import run_on_ray

    return partial(run_on_ray, **given)


def show(summary: dict[str, Any]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    scored, repeats = summary["scored on"], summary["repeats"]
    title = f"{summary['protocol']} protocol on {summary['dataset']}: {scored} classes, "
    title += f"{summary['folds']} folds × {repeats} repeats" if summary["folds"] > 1 else f"{repeats} repeats"
    title += "\nMODELS SELECTED ON THE TEST SET" if summary["selected on test"] else ""
    over = "trainings and classes" if repeats > 1 else "classes only, since nothing was repeated"
    spread = f" ± standard deviation of {summary['collections']} collections" if repeats > 1 else ""
    caption = f"percent: mean{spread} [95 % interval over {over}]; p adjusted for the number of methods (Holm)"
    columns = ("method", "D", *(metric.upper() for metric in METRICS), "MAP@R − first", "p")
    table = Table(*columns, title=title, caption=caption)
    for method in summary["methods"]:
        for row in rows(method, repeats):
            table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def rows(method: dict[str, Any], repeats: int) -> list[list[str]]:
    """The lines of one method: single models, their ensemble, and with the conventional protocol the published best."""
    lines = []
    for kind, dim in (("single", method["dim"]), ("ensemble", method.get("ensemble dim"))):
        if method[kind] is not None:
            scores = [_cell(method[kind][metric], repeats) for metric in METRICS]
            lines.append([method["method"], str(dim), *scores, *_difference(method.get("comparison", {}).get(kind))])
    if "best" in method:
        best = [f"{100 * method['best'][metric]:.2f}" for metric in METRICS]
        lines.append([f"{method['method']}, best of {repeats}", str(method["dim"]), *best, "", ""])
    return lines


def _cell(value: dict[str, Any], repeats: int) -> str:
    low, high = value["ci95"]
    spread = f" ± {100 * value['std']:.2f}" if repeats > 1 else ""
    return f"{100 * value['mean']:.2f}{spread}\n[{100 * low:.2f}, {100 * high:.2f}]"


def _difference(comparison: dict[str, Any] | None) -> list[str]:
    if comparison is None:
        return ["", ""]
    value = comparison["map@r"]
    low, high = value["ci95"]
    return [f"{100 * value['difference']:+.2f}\n[{100 * low:+.2f}, {100 * high:+.2f}]", f"{value['p holm']:.3g}"]
