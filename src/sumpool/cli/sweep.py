"""`sumpool sweep`: many runs over a search space."""

import argparse
from pathlib import Path
from typing import Any

from sumpool.cli import train
from sumpool.errors import InputError

EXAMPLE = """
SPACE is a YAML file of settings, each with a list of choices or a range:

  lr: {low: 1e-6, high: 1e-3, log: true}
  loss: [contrastive, triplet]
  pooling_settings.mass: {low: 0.1, high: 0.9}
  ccp_settings.pull: {low: 1e-5, high: 1e-2, log: true}
  loss_settings.ccp.per_class: {low: 1, high: 16}

The same command again continues a sweep; started several times at once, or on several machines with one --storage, it
shares the trials. All other flags are those of `sumpool train` and hold for every run.
"""


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags of a sweep; the rest are settings of the runs."""
    parser = argparse.ArgumentParser(
        prog="sumpool sweep",
        usage="sumpool sweep SPACE DATASET [--method gp|grid|factorial] [--trials N] [settings of sumpool train]",
        description="Train many runs over a search space.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("space", metavar="SPACE", type=Path, help="YAML file of what is varied")
    parser.add_argument("--method", default="gp", help="gp (Bayesian, default), grid, or factorial (screening)")
    parser.add_argument("--trials", type=int, default=20, help="runs of gp in all (default: %(default)s)")
    parser.add_argument("--storage", metavar="URL", help="database of the trials (default: SQLite in the folder)")
    parser.add_argument("--out", type=Path, help="folder of the sweep (default: sweeps/NAME OF SPACE)")
    args, rest = parser.parse_known_args(argv)
    runs = train.parse(rest)
    if runs.resume or runs.print_config:
        raise InputError("a sweep takes no --resume and no --print-config: the same command again continues it")
    args.settings = runs.settings
    return args


def run(args: argparse.Namespace) -> None:
    """Train until all trials are done, then show the best and draw what mattered."""
    from sumpool.training.space import read_space
    from sumpool.training.sweep import Sweep
    from sumpool.training.sweep_plots import draw_sweep

    if not args.settings.get("dataset"):
        raise InputError("name a dataset: sumpool sweep SPACE DATASET (`sumpool list datasets`)")
    if args.trials < 1:
        raise InputError(f"--trials must be at least 1, got {args.trials}")
    space = read_space(train.read_yaml(args.space.read_text(), str(args.space)))
    folder = args.out or Path("sweeps") / args.space.stem
    check(args.settings, space)
    about = {name: value for name, value in args.settings.items() if name not in ("device", "workers")}
    sweep = Sweep(folder, space, args.method, args.trials, args.storage, about, args.settings["seed"])
    sweep.run(lambda point, place: _train(args.settings, point, place))
    _show(sweep)
    for path in draw_sweep(sweep):
        print(path)


def check(settings: dict[str, Any], space: dict[str, Any]) -> None:
    """Refuse a misspelt setting before anything is trained."""
    from sumpool.training.config import TrainConfig
    from sumpool.training.space import Range, put

    first = {name: entry.low if isinstance(entry, Range) else entry.values[0] for name, entry in space.items()}
    TrainConfig.from_dict(put(settings, first))


def _train(settings: dict[str, Any], point: dict[str, Any], folder: Path) -> float:
    """One trial, continued if it was begun before."""
    from sumpool.training.config import TrainConfig
    from sumpool.training.space import put
    from sumpool.training.start import start
    from sumpool.training.sweep import RunError

    print(f"{folder.name}: {', '.join(f'{name} {_short(value)}' for name, value in point.items())}", flush=True)
    config = TrainConfig.from_dict(put(settings, point))
    training = start(folder, config, resume=(folder / "config.yaml").exists())
    try:
        training.fit()
    except InputError as reason:
        print(f"{folder.name}: failed, {reason}", flush=True)
        raise RunError(str(reason)) from reason
    if training.interrupted:
        raise KeyboardInterrupt  # the sweep stops too, and continues this run next time
    return float(training.best_score)


def _show(sweep: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("trial", "score", *sweep.space)
    for number, point, score in sweep.results()[:10]:
        table.add_row(f"{number:04d}", f"{score:.4f}", *(_short(point[name]) for name in sweep.space))
    console = Console()
    console.print(table)
    if sweep.method == "factorial":
        for name, effect in sweep.effects().items():
            console.print(f"main effect of {name}: {effect:+.4f}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
