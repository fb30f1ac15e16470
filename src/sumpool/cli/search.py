"""`sumpool search`: the images of an index that are most similar to an image."""

import argparse
from pathlib import Path
from typing import Any

from sumpool.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("index", type=Path, help="folder that `sumpool index` wrote")
    parser.add_argument("image", type=Path, help="the query")
    parser.add_argument("-k", type=int, default=10, help="how many images to show (default: %(default)s)")
    parser.add_argument("--model", help="folder of the model (default: where it was when the index was made)")
    parser.add_argument("--expand", type=int, default=0, metavar="N", help="query expansion with N neighbours")
    parser.add_argument("--rerank", action="store_true", help="k-reciprocal re-ranking of the nearest 100")
    parser.add_argument(
        "--false-match-rate",
        type=float,
        metavar="RATE",
        help="say which hits are matches, such that this share of pairs of different labels would be",
    )
    parser.add_argument("--sheet", type=Path, metavar="PNG", help="write a contact sheet with the weight maps")


def run(args: argparse.Namespace) -> None:
    """Search, print a table, and draw the contact sheet."""
    from sumpool.embedder import Embedder
    from sumpool.retrieval import Index

    index = Index.load(args.index)
    embedder = Embedder.load(_model(args, index))
    vector = embedder.embed_files([args.image], progress=False)
    hits = index.search(vector, args.k, model=embedder.fingerprint(), expand=args.expand, rerank=args.rerank)
    threshold = None if args.false_match_rate is None else index.threshold(args.false_match_rate)
    rows = [
        (index.records[item], score)
        for item, score in zip(hits.items[0].tolist(), hits.scores[0].tolist(), strict=True)
        if item >= 0
    ]
    _print(args.image, rows, threshold)
    if args.sheet:
        _sheet(args, embedder, Path(index.about.get("folder", ".")), rows)


def _model(args: argparse.Namespace, index: Any) -> str:
    model = args.model or index.about.get("model")
    if not model:
        raise InputError(f"{args.index} does not say where its model is: give --model")
    return str(model)


def _print(image: Path, rows: list[tuple[dict[str, Any], float]], threshold: float | None) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    names = [Column("label", overflow="fold"), Column("path", overflow="fold")]
    table = Table("", "score", *([] if threshold is None else ["match"]), *names)
    for rank, (record, score) in enumerate(rows, start=1):
        match = [] if threshold is None else ["yes" if score >= threshold else "no"]
        # As text: a name may look like markup.
        shown = [Text(record.get("label") or ""), Text(record["path"])]
        table.add_row(str(rank), f"{score:.4f}", *match, *shown)
    console = Console()
    console.print(table)
    if threshold is not None:
        console.print(f"match: score of at least {threshold:.4f}")


def _sheet(args: argparse.Namespace, embedder: Any, folder: Path, rows: list[tuple[dict[str, Any], float]]) -> None:
    from sumpool.retrieval.sheet import contact_sheet

    found = [
        (folder / record["path"], [f"{score:.4f} {record.get('label') or ''}", record["path"]])
        for record, score in rows
    ]
    tiles = [_tile(embedder, path, caption) for path, caption in [(args.image, ["query", args.image.name]), *found]]
    args.sheet.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(tiles).save(args.sheet, "PNG")
    print(f"{args.sheet}: the query and {len(rows)} images")


def _tile(embedder: Any, path: Path, caption: list[str]) -> Any:
    """What the model sees of an image, and where it looks."""
    import numpy as np
    import torch

    from sumpool.data.image import naming, open_image
    from sumpool.data.transforms import CentreCrop, to_tensor
    from sumpool.retrieval.sheet import Tile

    preprocessing = embedder.backbone.preprocessing
    with naming(str(path)):
        picture = CentreCrop(preprocessing).pixels(open_image(path), np.random.default_rng(0))
    with torch.no_grad():
        pooled = embedder(to_tensor(picture, preprocessing)[None])
    drawn = pooled.weights is not None and pooled.grid is not None
    return Tile(picture, pooled.weights[0].view(pooled.grid) if drawn else None, caption)
