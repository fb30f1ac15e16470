"""`sumpool explain`: pictures of what an embedding, or a similarity, is made of."""

import argparse
from pathlib import Path

from sumpool.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", help="folder of a saved model, or a hub repository owner/name")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/explain"), help="folder (default: %(default)s)")
    parser.add_argument(
        "--pair", action="store_true", help="explain the similarity of the first image to each other one"
    )


def run(args: argparse.Namespace) -> None:
    """Write one PNG per image, or per pair."""
    if args.pair and len(args.images) < 2:
        raise InputError("--pair needs a query and at least one other image, got one image")
    from sumpool.embedder import Embedder
    from sumpool.explain import draw_explanation, draw_pair, explain, explain_pair

    embedder = Embedder.load(args.model)
    query = args.images[0]
    for number, image in enumerate(args.images[args.pair :], 1):
        # Numbered: images of different folders may share a name.
        if args.pair:
            path = args.out / f"{number:03d}_{query.stem}_{image.stem}.png"
            draw_pair(explain_pair(embedder, query, image), path)
        else:
            path = args.out / f"{number:03d}_{image.stem}.png"
            draw_explanation(explain(embedder, image), path)
        print(path)
