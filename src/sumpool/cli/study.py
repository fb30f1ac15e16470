"""`sumpool study`: run one study, or all, and write their figures and numbers."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sumpool.errors import InputError
from sumpool.registry import lookup

if TYPE_CHECKING:
    from sumpool.studies.base import Call


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", help="which study (`sumpool list studies` shows them), or all")
    parser.add_argument("--scale", default="cpu", help="smoke (seconds), cpu (minutes on two cores; default), paper")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for page, figures and numbers (default: out/NAME); trainings are in ./out/NAME/SCALE",
    )
    parser.add_argument("--data-root", help="folder of the datasets (default: the SUMPOOL_DATA environment variable)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Run the study."""
    from sumpool.studies import STUDIES
    from sumpool.studies.base import Call, overview

    out = args.out or Path("out") / args.name
    call = Call(args.scale, out, args.data_root, args.jobs)
    if args.name != "all":
        lookup("study", STUDIES, args.name)
        _one(args.name, call)
        return
    failed = []
    for name in STUDIES:
        try:
            _one(name, replace(call, out=out / name))
        except InputError as reason:  # data that is not here stops one study, not the others
            failed.append(f"{name}: {reason}")
    (out / "README.md").write_text(overview(out))
    print(out / "README.md")
    if failed:
        raise InputError(f"not all studies ran: {'; '.join(failed)}")


def _one(name: str, call: "Call") -> None:
    from sumpool.studies import STUDIES
    from sumpool.studies.base import run_study

    outcome = run_study(STUDIES[name], call)
    written = f"{call.out / 'README.md'}\n{call.out / 'results.json'}"
    print(f"{outcome.body}\n\n{outcome.verdict}: {outcome.reason}\n{written}", flush=True)
