"""`sumpool study`: run one study and write its figures and numbers."""

import argparse
from pathlib import Path

from sumpool.registry import lookup


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", help="which study; `sumpool list studies` shows them")
    parser.add_argument(
        "--scale", default="cpu", help="smoke (seconds), cpu (minutes on two cores), paper (default: cpu)"
    )
    parser.add_argument("--out", type=Path, help="folder for figures and numbers (default: out/NAME)")
    parser.add_argument("--data-root", help="folder of the datasets (default: the SUMPOOL_DATA environment variable)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Run the study."""
    from sumpool.studies import STUDIES
    from sumpool.studies.base import Call, run_study

    study = lookup("study", STUDIES, args.name)
    out = args.out or Path("out") / args.name
    outcome = run_study(study, Call(args.scale, out, args.data_root, args.jobs))
    print(f"{outcome.body}\n\n{outcome.verdict}: {outcome.reason}\n{out / 'README.md'}\n{out / 'results.json'}")
