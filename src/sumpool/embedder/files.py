"""Image files to batches, decoded in threads while the model works on the batch before."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sumpool.data.image import SUFFIXES, naming, open_image
from sumpool.data.progress import counted
from sumpool.data.transforms import CentreCrop
from sumpool.errors import InputError
from sumpool.types import Preprocessing


def load_image(path: str | Path, preprocessing: Preprocessing) -> Tensor:
    """One file as the backbone wants it, (3,H,W)."""
    with naming(str(path)):
        return CentreCrop(preprocessing)(open_image(Path(path)), np.random.default_rng(0))


def batches_of_files(
    paths: Sequence[str | Path], preprocessing: Preprocessing, batch_size: int, progress: bool
) -> Iterator[Tensor]:
    """Batches of prepared images in the order of the paths."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    groups = [paths[start : start + batch_size] for start in range(0, len(paths), batch_size)]
    with ThreadPoolExecutor() as pool:

        def submit(group: Sequence[str | Path]) -> list[Future[Tensor]]:
            return [pool.submit(load_image, path, preprocessing) for path in group]

        ahead = submit(groups[0]) if groups else []
        following = [*groups[1:], []]
        for group in counted(following, len(following), "embedding") if progress else following:
            current, ahead = ahead, submit(group)
            yield torch.stack([future.result() for future in current])


def images_under(folder: str | Path) -> list[Path]:
    """The image files in a folder and its sub-folders, sorted."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no folder at {folder}")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise InputError(f"{folder} holds no image files (endings: {', '.join(sorted(SUFFIXES))})")
    return found
