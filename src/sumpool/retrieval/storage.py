"""An index as a folder: `index.json` names the files that hold the embeddings (npy), the records (JSON) and more.

A save writes new files beside the old ones and replaces `index.json` last, in one atomic step. Whatever interrupts
it, the folder holds the old index or the new one, complete; what an interrupted save left is removed by the next.
"""

import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sumpool.errors import InputError

FORMAT = 1
MANIFEST = "index.json"
SETTINGS = {"model": str, "distance": str, "backend": str, "about": dict}
OWN_FILE = re.compile(r"(embeddings|records|structure|index)-[0-9a-f]{8}\.(npy|json|faiss)")


class Stored(NamedTuple):
    """What a folder holds."""

    settings: dict[str, Any]
    embeddings: np.ndarray[Any, Any]
    """(N,D), mapped from disk."""
    records: list[dict[str, Any]]
    structure: bytes | None
    """A serialised approximate index."""


def check_place(folder: Path) -> None:
    """Refuse a place where an index cannot be, or would mix with other files."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"{there} is a file, not a folder: choose another place for the index")
    if there == folder and any(folder.iterdir()) and not (folder / MANIFEST).exists() and not _own_files(folder):
        raise InputError(f"{folder} is neither empty nor an index: choose another folder")


def write_folder(
    folder: Path,
    settings: Mapping[str, Any],
    embeddings: np.ndarray[Any, Any],
    records: list[dict[str, Any]],
    structure: bytes | None,
) -> None:
    """Save, atomically: an existing index in the folder stays whole until the new one is."""
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    files = {"embeddings": f"embeddings-{token}.npy", "records": f"records-{token}.json"}
    _write(folder / files["embeddings"], embeddings)
    _write(folder / files["records"], json.dumps(records, ensure_ascii=False).encode())
    if structure is not None:
        files["structure"] = f"structure-{token}.faiss"
        _write(folder / files["structure"], structure)
    manifest = {"format": FORMAT, **settings, "files": files}
    fresh = folder / f"index-{token}.json"
    _write(fresh, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    _sync(folder)
    fresh.replace(folder / MANIFEST)
    _sync(folder)
    for path in _own_files(folder):
        if path.name not in files.values():
            path.unlink()


def read_folder(folder: Path) -> Stored:
    """Load; the embeddings stay on disk and are read when used."""
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder} is not an index: it has no {MANIFEST}; `sumpool index` makes one")
    try:
        settings = json.loads((folder / MANIFEST).read_text())
        if settings.pop("format") != FORMAT:
            raise InputError(f"{folder} was written by another version of sumpool: index the images again")
        files = settings.pop("files")
        if not all(OWN_FILE.fullmatch(name) for name in files.values()):
            raise ValueError(f"it names foreign files {sorted(files.values())}")
        if {name: type(value) for name, value in settings.items()} != SETTINGS:
            raise ValueError(f"its settings must be {', '.join(SETTINGS)}, got {', '.join(settings)}")
        embeddings = np.load(folder / files["embeddings"], mmap_mode="r", allow_pickle=False)
        records = json.loads((folder / files["records"]).read_text())
        structure = (folder / files["structure"]).read_bytes() if "structure" in files else None
        if embeddings.ndim != 2 or len(records) != len(embeddings):
            raise ValueError(f"{len(records)} records do not fit embeddings of shape {embeddings.shape}")
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as broken:
        if isinstance(broken, InputError):
            raise
        raise InputError(f"the index {folder} is damaged ({broken}): index the images again") from broken
    return Stored(settings, embeddings, records, structure)


def _own_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if OWN_FILE.fullmatch(path.name)]


def _write(path: Path, content: bytes | np.ndarray[Any, Any]) -> None:
    """Write a file through to the disk."""
    with path.open("wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            np.save(file, content, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make renames in a folder durable, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
