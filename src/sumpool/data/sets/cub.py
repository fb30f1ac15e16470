"""CUB-200-2011 (Wah et al. 2011)."""

from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.data.sets.official import Archive, descend, official, table

_URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"


@official(
    "cub",
    folder="CUB_200_2011",
    published={"train": (5864, 100), "test": (5924, 100)},
    archives=(Archive("CUB_200_2011.tgz", "97eceeb196236b17998738112f37df78", _URL),),
)
def cub(folder: Path) -> Dataset:
    """CUB-200-2011: birds, first half of the species train, second half test."""
    folder = descend(folder, "images.txt")
    names = [row[1] for row in table(folder / "classes.txt")]
    labels = {row[0]: int(row[1]) - 1 for row in table(folder / "image_class_labels.txt")}
    boxes = {row[0]: [float(value) for value in row[1:5]] for row in table(folder / "bounding_boxes.txt")}
    records = []
    for number, path in table(folder / "images.txt"):
        label, (x, y, width, height) = labels[number], boxes[number]
        split = "train" if label < len(names) // 2 else "test"
        records.append(Record(folder / "images" / path, label, split, box=(x, y, x + width, y + height)))
    return Dataset("cub", records, names)
