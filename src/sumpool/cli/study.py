"""`sumpool study`: run one study and write its figures and numbers."""

import argparse
from pathlib import Path

from sumpool.registry import lookup


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", help="which study; `sumpool list studies` shows them")
    parser.add_argument("--out", type=Path, help="folder for figures and numbers (default: out/NAME)")


def run(args: argparse.Namespace) -> None:
    """Run the study."""
    from sumpool.studies import STUDIES

    study = lookup("study", STUDIES, args.name)
    study(args.out or Path("out") / args.name)
