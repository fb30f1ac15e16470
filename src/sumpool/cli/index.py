"""`sumpool index`: embed a folder of images into a searchable index, or bring one up to date."""

import argparse
from pathlib import Path
from typing import Any

from sumpool.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", help="folder of a saved model")
    parser.add_argument("folder", type=Path, help="images, in any depth; the folder an image is in is its label")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="INDEX", help="folder of the index")
    parser.add_argument("--backend", default="exact", help="exact (default), or with FAISS: hnsw, ivfpq")
    parser.add_argument("--half", action="store_true", help="store float16 embeddings")
    parser.add_argument("--batch-size", type=int, default=32, help="images at a time (default: %(default)s)")
    parser.add_argument("--rebuild", action="store_true", help="start anew, whatever INDEX holds")


def run(args: argparse.Namespace) -> None:
    """Embed new and changed images, forget deleted ones, and write the index."""
    from sumpool.embedder import Embedder
    from sumpool.retrieval import Index
    from sumpool.retrieval.approximate import require
    from sumpool.retrieval.storage import MANIFEST, check_place

    found = image_records(args.folder)
    require(args.backend, len(found))
    check_place(args.out)
    embedder = Embedder.load(args.model)
    model = embedder.fingerprint()
    old = None if args.rebuild or not (args.out / MANIFEST).exists() else Index.load(args.out)
    if old is not None:
        _check_same(old, model, args)
    known = {} if old is None else {_identity(record): item for item, record in enumerate(old.records)}
    fresh = [record for record in found if _identity(record) not in known]
    kept = {_identity(record) for record in found}
    gone = [item for identity, item in known.items() if identity not in kept]
    paths = [args.folder / record["path"] for record in fresh]
    vectors = embedder.embed_files(paths, batch_size=args.batch_size, progress=True)
    if old is None:
        about = {"folder": str(args.folder.resolve()), "model": _location(args.model)}
        index = Index(vectors, fresh, model=model, distance=embedder.distance, backend=args.backend, about=about)
    else:
        index = old
        if fresh:
            index.add(vectors, fresh)
        index.remove(gone)  # after adding, so that the index is never empty
    index.save(args.out, half=args.half)
    print(f"{args.out}: {len(index)} images ({len(fresh)} embedded, {len(gone)} removed), {index.backend} search")


def image_records(folder: Path) -> list[dict[str, Any]]:
    """A record for every image below a folder, in the order of the paths."""
    from sumpool.embedder.files import images_under

    return [_record(path, folder) for path in images_under(folder)]


def _record(path: Path, folder: Path) -> dict[str, Any]:
    inside, facts = path.relative_to(folder), path.stat()
    label = inside.parent.name or None
    return {"path": inside.as_posix(), "label": label, "size": facts.st_size, "modified": facts.st_mtime_ns}


def _identity(record: dict[str, Any]) -> tuple[Any, ...]:
    """What makes an image the same as when it was indexed."""
    return record["path"], record["size"], record["modified"]


def _location(model: str) -> str:
    return str(Path(model).resolve()) if Path(model).exists() else model


def _check_same(old: Any, model: str, args: argparse.Namespace) -> None:
    """An index is brought up to date only with its own model, folder and kind of search."""
    if model != old.model:
        raise InputError(
            f"{args.out} was made by another model ({old.model[:12]}, now {model[:12]}), whose embeddings cannot be "
            "mixed with this one's: use that model, another folder, or --rebuild"
        )
    if old.about.get("folder") != str(args.folder.resolve()):
        raise InputError(f"{args.out} holds the images of {old.about.get('folder')}: use another folder, or --rebuild")
    if old.backend != args.backend:
        raise InputError(f"{args.out} is for {old.backend} search, not {args.backend}: use --rebuild to change that")
