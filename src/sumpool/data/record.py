"""One labelled image: where it is, what it shows, and which part of a protocol it serves."""

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels of the upright image."""
Source: TypeAlias = Path | Array | tuple[Array, ...]
"""A file, encoded bytes (1-D uint8), pixels (H×W or H×W×3 uint8), four tiles of a collage, or token ids (1-D int64)."""

SPLITS = ("train", "val", "test")
ROLES = ("both", "query", "gallery")


class Record(NamedTuple):
    """What a dataset knows about one image."""

    source: Source
    label: int
    """Number of the class in the dataset's `class_names`, that is, in the official order."""
    split: str = "train"
    role: str = "both"
    """Whether the image is searched for, searched in, or both."""
    box: Box | None = None
    name: str = ""
    """What to call the image in messages when its source is not a file."""

    @property
    def title(self) -> str:
        """The path, or the name of an image that has none."""
        return str(self.source) if isinstance(self.source, Path) else self.name or "image in memory"

    @property
    def is_tokens(self) -> bool:
        """Whether the source is token ids, which no transform changes."""
        return isinstance(self.source, np.ndarray) and self.source.dtype != np.uint8
