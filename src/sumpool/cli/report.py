"""`sumpool report`: runs and protocols as one page, and as Markdown, CSV or LaTeX."""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a protocol or of a training run")
    parser.add_argument(
        "-o", "--out", action="append", type=Path, metavar="FILE",
        help="file to write; its ending, .html, .md, .csv or .tex, is the format; may be given several times "
        "(default: report.html)",
    )  # fmt: skip
    parser.add_argument("--title", default="Report", help="heading (default: %(default)s)")
    parser.add_argument(
        "--reference", metavar="METHOD", help="method that others are compared with (default: the first)"
    )


def run(args: argparse.Namespace) -> None:
    """Write the files and say what is in them."""
    from sumpool.evaluation.report import write_report

    files = args.out or [Path("report.html")]
    groups = write_report(args.runs, files, args.title, args.reference)
    for group in groups:
        print(f"{group.title}: {', '.join(result.method for result in group.results)}")
    for file in files:
        print(file)
