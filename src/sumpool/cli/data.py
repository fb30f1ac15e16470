"""`sumpool data`: look at, fetch, unpack and check datasets."""

import argparse
import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sumpool.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their flags."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (act, line) in ACTIONS.items():
        sub = commands.add_parser(name, help=line, description=line)
        sub.set_defaults(act=act)
        if name == "check":
            sub.add_argument("folder", type=Path, help="folder whose images are decoded")
            continue
        sub.add_argument("name", help="a dataset of `sumpool list datasets`; info also takes a path of your own images")
        sub.add_argument("--data-root", type=Path, help="folder of the datasets (default: $SUMPOOL_DATA)")
        if name == "info":
            every = "settings of the set; every set takes crop_boxes=True and in_memory=SIDE"
            sub.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help=every)
        if name == "prepare":
            sub.add_argument("--from", dest="archives", type=Path, nargs="+", required=True, metavar="ARCHIVE")
            sub.add_argument("--unverified", action="store_true", help="accept archives and counts that differ")
        if name in ("prepare", "download"):
            sub.add_argument("--pack", action="store_true", help="also write NAME.npz with shrunk images")
            sub.add_argument("--side", type=int, default=256, help="short side of shrunk images (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Run the chosen sub-command."""
    args.act(args)


def info(args: argparse.Namespace) -> None:
    """Print the splits of a dataset, its folds, and what is worth knowing."""
    from sumpool.data import load_dataset
    from sumpool.data.report import report

    settings = dict(setting(text) for text in args.set)
    print("\n".join(report(load_dataset(args.name, args.data_root, **settings))))


def setting(text: str) -> tuple[str, Any]:
    """A setting written KEY=VALUE; the value is a Python literal or, failing that, text."""
    key, found, value = text.partition("=")
    if not found:
        raise InputError(f"settings are written KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def prepare(args: argparse.Namespace) -> None:
    """Unpack the official archives of a dataset below the data folder."""
    from sumpool.data.image import require_side
    from sumpool.data.prepare import official_set, prepare_archives

    require_side(args.side)  # now, not after an hour of unpacking
    chosen = official_set(args.name)
    folder = prepare_archives(chosen, args.archives, args.data_root, args.unverified)
    _finish(args, folder, verify=not args.unverified)


def download(args: argparse.Namespace) -> None:
    """Fetch the archives of a dataset and unpack them."""
    from sumpool.data.image import require_side
    from sumpool.data.prepare import fetch_archives, official_set, prepare_archives

    require_side(args.side)
    chosen = official_set(args.name)
    folder = prepare_archives(chosen, fetch_archives(chosen, args.data_root), args.data_root)
    _finish(args, folder, verify=True)


def _finish(args: argparse.Namespace, folder: Path, verify: bool) -> None:
    from sumpool.data.checks import require_files
    from sumpool.data.prepare import official_set
    from sumpool.data.report import report
    from sumpool.data.shrink import write_pack

    chosen = official_set(args.name)
    dataset = chosen.open(folder, chosen.published if verify else {})
    require_files(dataset)
    if args.pack and dataset.preprocessing is not None:
        raise InputError(f"{args.name} is unpacked, but its images are too small to gain from a pack")
    if args.pack:
        print(f"wrote {write_pack(dataset, folder.with_name(f'{args.name}.npz'), args.side)}")
    print("\n".join(report(dataset)))


def check(args: argparse.Namespace) -> None:
    """Decode every image of a folder and list those that fail."""
    from sumpool.data.prepare import undecodable
    from sumpool.data.sets.folder import image_files

    if not args.folder.is_dir():
        raise InputError(f"{args.folder} is not a folder")
    files = image_files(args.folder)
    if not files:
        raise InputError(f"{args.folder} has no images")
    problems = undecodable(files)
    for problem in problems:
        print(problem)
    if problems:
        raise InputError(f"{len(problems)} of {len(files)} images cannot be read: replace or remove them")
    print(f"all {len(files)} images can be read")


ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], None], str]] = {
    "info": (info, "print a dataset's splits, folds and oddities"),
    "prepare": (prepare, "unpack official archives below the data folder"),
    "download": (download, "fetch and unpack a dataset with a stable public address"),
    "check": (check, "decode every image of a folder and list bad files"),
}
