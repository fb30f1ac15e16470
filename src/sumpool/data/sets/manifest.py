"""One's own images: a table that lists them."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sumpool.data.checks import require_sound
from sumpool.data.dataset import Dataset
from sumpool.data.record import ROLES, SPLITS, Box, Record
from sumpool.errors import InputError

_REQUIRED = ("path", "label")


def manifest(root: str | Path) -> Dataset:
    """A CSV or Parquet table with the columns path and label, and if wanted split, role, box.

    Paths are relative to the table. `split` is train, val or test (without the column the first half of the classes,
    in order of appearance, train); `role` is query, gallery or both; `box` is "left top right bottom" in pixels.
    """
    path = Path(root)
    if not path.is_file():
        raise InputError(f"manifest {path} does not exist")
    try:
        rows = list(_parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"manifest {path} is not a CSV table in UTF-8 ({error}): save it as such") from None
    if not rows:
        raise InputError(f"manifest {path} has no rows")
    names = list(dict.fromkeys(row["label"] for row in rows))
    label = {name: position for position, name in enumerate(names)}
    records = [
        _record(row, label[row["label"]], len(names), path.parent, f"manifest {path} row {number}")
        for number, row in enumerate(rows, 1)
    ]
    return require_sound(Dataset(path.stem, records, names))


def _record(row: dict[str, str], label: int, classes: int, folder: Path, where: str) -> Record:
    if not row["path"] or not row["label"]:
        raise InputError(f"{where} lacks a path or a label")
    split = row.get("split") or ("train" if label < (classes + 1) // 2 else "test")
    role = row.get("role") or "both"
    for value, known in ((split, SPLITS), (role, ROLES)):
        if value not in known:
            raise InputError(f"{where} has {value!r}: expected one of {', '.join(known)}")
    return Record(folder / row["path"], label, split, role, _box(row.get("box"), where))


def _box(text: str | None, where: str) -> Box | None:
    if not text:
        return None
    try:
        left, top, right, bottom = (float(value) for value in text.split())
    except ValueError:
        raise InputError(f"{where} has box {text!r}: expected 'left top right bottom'") from None
    if not (0 <= left < right and 0 <= top < bottom):
        raise InputError(f"{where} has box {text!r}: right and bottom must be beyond left and top")
    return left, top, right, bottom


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        _require_columns(reader.fieldnames or (), path)
        for row in reader:
            yield {key: (value or "").strip() for key, value in row.items() if isinstance(value, str | None) and key}


def _parquet_rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        from pyarrow import ArrowInvalid, parquet  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("reading Parquet needs pyarrow: pip install 'sumpool[data]'") from None
    try:
        content: Any = parquet.read_table(path)
    except ArrowInvalid as error:
        raise InputError(f"manifest {path} is not a Parquet file: {error}") from None
    _require_columns(content.column_names, path)
    for row in content.to_pylist():
        yield {key: "" if value is None else str(value) for key, value in row.items()}


def _require_columns(columns: Any, path: Path) -> None:
    if not set(_REQUIRED) <= set(columns):
        raise InputError(
            f"manifest {path} needs the columns {' and '.join(_REQUIRED)}, got {', '.join(columns) or 'none'}"
        )
