"""One's own images: a folder with one sub-folder per class."""

from pathlib import Path

from sumpool.data.checks import require_sound
from sumpool.data.dataset import Dataset
from sumpool.data.image import SUFFIXES
from sumpool.data.record import Record
from sumpool.errors import InputError

_PARTS = {"train": ("train", "both"), "val": ("val", "both"), "test": ("test", "both")}
_PARTS |= {"query": ("test", "query"), "gallery": ("test", "gallery")}


def folder(root: str | Path, test_share: float = 0.5) -> Dataset:
    """A folder with one sub-folder per class: the last `test_share` of the classes test.

    When the sub-folders are called train, val, test, query or gallery, each of them holds one sub-folder per class.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder")
    if not 0 <= test_share <= 1:
        raise InputError(f"test_share must be between 0 and 1, got {test_share}")
    below = _subfolders(root)
    parts = {path.name: path for path in below}
    if parts and parts.keys() <= _PARTS.keys():
        images = {name: _images(_subfolders(path)) for name, path in parts.items()}
    else:
        images = {"": _images(below)}
    names = sorted({name for part in images.values() for name in part})
    trained = len(names) - round(len(names) * test_share)
    records = []
    for part, classes in images.items():
        for name, paths in classes.items():
            label = names.index(name)
            split, role = _PARTS.get(part, ("train" if label < trained else "test", "both"))
            records += [Record(path, label, split, role) for path in paths]
    if not records:
        raise InputError(f"{root} has no images in sub-folders: expected {root.name}/CLASS/IMAGE.jpg")
    return require_sound(Dataset(root.name, records, names))


def image_files(root: Path) -> list[Path]:
    """All images below a folder, by suffix, sorted; hidden files left out."""
    found = (path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
    return sorted(path for path in found if path.is_file())


def _subfolders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(classes: list[Path]) -> dict[str, list[Path]]:
    found = {path.name: image_files(path) for path in classes}
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise InputError(
            f"folder {classes[0].parent / empty[0]} has no images: remove it or add some ({len(empty)} such)"
        )
    return found
