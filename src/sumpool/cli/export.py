"""`sumpool export`: a saved model as ONNX."""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", help="folder of a saved model, or a hub repository owner/name")
    parser.add_argument("path", type=Path, help="the ONNX file to write")


def run(args: argparse.Namespace) -> None:
    """Write the file."""
    from sumpool.embedder import Embedder

    Embedder.load(args.model).to_onnx(args.path)
    size = args.path.stat().st_size / 1e6
    print(f"{args.path}: {size:.1f} MB, input images (batch, 3, height, width), output embedding (batch, dim)")
