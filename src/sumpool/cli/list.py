"""`sumpool list`: every registered component."""

import argparse
from collections.abc import Mapping
from importlib import import_module

from sumpool.registry import describe, lookup

KINDS = {
    "datasets": ("sumpool.data", "DATASETS"),
    "backbones": ("sumpool.backbones", "BACKBONES"),
    "poolings": ("sumpool.pooling", "POOLINGS"),
    "losses": ("sumpool.losses", "LOSSES"),
    "regularisers": ("sumpool.losses", "REGULARISERS"),
    "methods": ("sumpool.evaluation.methods", "METHODS"),
    "studies": ("sumpool.studies", "STUDIES"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("kind", nargs="?", help=f"only one kind: {', '.join(KINDS)}")


def run(args: argparse.Namespace) -> None:
    """Print the tables."""
    if args.kind:
        lookup("kind of component", KINDS, args.kind)
    for kind in [args.kind] if args.kind else KINDS:
        module, attribute = KINDS[kind]
        table: Mapping[str, object] = getattr(import_module(module), attribute)
        width = max(map(len, table))
        print(kind)
        for name, component in table.items():
            print(f"  {name:<{width}}  {component if isinstance(component, str) else describe(component)}")
