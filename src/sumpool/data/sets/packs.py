"""A pack of one's own, by path."""

from pathlib import Path

from sumpool.data.checks import require_sound
from sumpool.data.dataset import Dataset
from sumpool.data.pack import read_pack


def pack(root: str | Path) -> Dataset:
    """An `.npz` pack of pixels or of encoded images."""
    return require_sound(read_pack(Path(root)))
