"""Keep a dataset decoded in memory."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.image import naming, require_side, shrunk
from sumpool.data.progress import counted
from sumpool.data.record import Record


def in_memory(dataset: Dataset, side: int = 256) -> Dataset:
    """The same dataset with every image decoded once, short side at most `side`.

    Done before worker processes start, so that they share the pixels. 256×340 RGB takes 0.26 MB an image.
    """
    require_side(side)
    with ThreadPoolExecutor() as pool:
        loaded = pool.map(lambda record: _decoded(record, side), dataset.records)
        return dataset.with_records(list(counted(loaded, len(dataset), f"decoding {dataset.name}")), keep_labels=True)


def _decoded(record: Record, side: int) -> Record:
    with naming(record.title):
        pixels, scale = shrunk(record.source, side)
    box = None
    if record.box is not None:
        left, top, right, bottom = record.box
        box = (left * scale, top * scale, right * scale, bottom * scale)
    return record._replace(source=np.asarray(pixels), box=box, name=record.title)
