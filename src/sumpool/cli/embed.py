"""`sumpool embed`: the vectors of a folder of images, as one file."""

import argparse
from pathlib import Path

from sumpool.registry import lookup

PRECISIONS = {"float32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", help="folder of a saved model, or a hub repository owner/name")
    parser.add_argument("folder", type=Path, help="images, in any depth")
    parser.add_argument("-o", "--out", type=Path, default=Path("embeddings.npz"), help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=32, help="images at a time (default: %(default)s)")
    parser.add_argument("--precision", default="float32", help=f"{', '.join(PRECISIONS)} (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or mps")


def run(args: argparse.Namespace) -> None:
    """Write `embeddings` (N,D), `paths` relative to the folder, and the `model`'s fingerprint."""
    precision = lookup("precision", PRECISIONS, args.precision)
    import numpy as np
    import torch

    from sumpool.embedder import Embedder
    from sumpool.embedder.files import images_under
    from sumpool.training.processes import pick_device

    paths = images_under(args.folder)
    embedder = Embedder.load(args.model)
    fingerprint = embedder.fingerprint()
    embedder.to(pick_device(args.device), getattr(torch, precision))
    vectors = embedder.embed_files(paths, batch_size=args.batch_size)
    names = [path.relative_to(args.folder).as_posix() for path in paths]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("wb") as file:  # a file, not a name, to which NumPy would add an ending
        np.savez(file, embeddings=vectors.numpy(), paths=np.array(names), model=np.array(fingerprint))
    print(f"{args.out}: {len(names)} images, {vectors.shape[1]} dimensions")
