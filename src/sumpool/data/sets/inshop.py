"""In-shop Clothes Retrieval, a part of DeepFashion (Liu et al. 2016)."""

from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import Box, Record
from sumpool.data.sets.official import Archive, official, table
from sumpool.errors import InputError


@official(
    "inshop",
    folder="In-shop Clothes Retrieval Benchmark",
    published={"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)},
    archives=(Archive("img.zip"), Archive("list_eval_partition.txt"), Archive("list_bbox_inshop.txt")),
)
def inshop(folder: Path) -> Dataset:
    """In-shop clothes: separate query and gallery images of the test items."""
    rows = table(_locate(folder, "Eval/list_eval_partition.txt"), skip=2)
    images = _locate(folder, "Img/img").parent
    items = sorted({row[1] for row in rows})
    label = {item: position for position, item in enumerate(items)}
    boxes = _boxes(folder)
    records = [
        Record(
            images / path,
            label[item],
            "train" if status == "train" else "test",
            "both" if status == "train" else status,
            boxes.get(path),
        )
        for path, item, status in rows
    ]
    return Dataset("inshop", records, items)


def _locate(folder: Path, path: str) -> Path:
    """A file of the official tree, which is also accepted without its first folder."""
    for place in (folder / path, folder / path.split("/", 1)[1]):
        if place.exists():
            return place
    raise InputError(f"{folder} has no {path}: put the files of the benchmark there, images unpacked")


def _boxes(folder: Path) -> dict[str, Box]:
    try:
        rows = table(_locate(folder, "Anno/list_bbox_inshop.txt"), skip=2)
    except InputError:  # the boxes are optional
        return {}
    return {row[0]: (float(row[3]), float(row[4]), float(row[5]), float(row[6])) for row in rows}
