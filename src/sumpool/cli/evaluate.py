"""`sumpool evaluate`: how well a model finds images of the same class."""

import argparse
from pathlib import Path
from typing import Any

from sumpool.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", help="folder of a run (its best model) or of a saved model, or a hub repository")
    parser.add_argument("dataset", help="name of a dataset (`sumpool list datasets`) or a path")
    parser.add_argument("--split", default="test", help="train, val, test or all (default: %(default)s)")
    parser.add_argument("--data-root", type=Path, help="folder of published datasets (default: $SUMPOOL_DATA)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the dataset")
    parser.add_argument("--metrics", nargs="+", metavar="METRIC", help="such as r@10 or nmi")
    parser.add_argument("--batch-size", type=int, default=128, help="images at a time (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or mps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")


def run(args: argparse.Namespace) -> None:
    """Embed the images, score them, print a table."""
    from sumpool.cli.data import setting
    from sumpool.data import CentreCrop, load_dataset
    from sumpool.embedder import Embedder
    from sumpool.retrieval.metrics import DEFAULT_METRICS
    from sumpool.training.evaluate import require_metrics, score_dataset
    from sumpool.training.processes import pick_device

    names = tuple(args.metrics or DEFAULT_METRICS)
    require_metrics(names)
    device = pick_device(args.device)
    embedder = Embedder.load(model_folder(args.model)).to(device).eval()
    dataset = load_dataset(args.dataset, args.data_root, **dict(setting(text) for text in args.set))
    if args.split != "all":
        dataset = dataset.split(args.split)
    dataset = dataset.transformed(CentreCrop(embedder.backbone.preprocessing))
    loading = {"batch_size": args.batch_size, "workers": args.workers}
    metrics = score_dataset(embedder, dataset, names, embedder.distance, **loading)
    _print(f"{dataset.name}, {args.split}: {len(dataset)} images, {len(dataset.classes)} classes", metrics)
    if args.json:
        about = {"model": args.model, "fingerprint": embedder.fingerprint(), "dataset": dataset.name}
        _write(args.json, {**about, "split": args.split, "images": len(dataset), "metrics": dict(metrics)})


def model_folder(model: str) -> str:
    """The best model where a run is named, else the name itself."""
    run = Path(model)
    if not (run / "metrics.jsonl").exists() and not (run / "environment.json").exists():
        return model
    if not (run / "best").is_dir():
        raise InputError(f"the run {run} has no best model yet: it was not validated")
    return str(run / "best")


def _print(title: str, metrics: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("metric", "value")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.4f}")
    console = Console()
    console.print(Text(title))  # the name of a dataset may look like markup
    console.print(table)
    if metrics.without_positive:
        console.print(f"{metrics.without_positive} queries have no other image of their class and are in no mean")


def _write(path: Path, content: dict[str, Any]) -> None:
    import json

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
