"""FGVC-Aircraft (Maji et al. 2013)."""

from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import Box, Record
from sumpool.data.sets.official import Archive, descend, official, table

_URL = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"


@official(
    "aircraft",
    folder="fgvc-aircraft-2013b",
    published={"train": (5000, 50), "test": (5000, 50)},
    archives=(Archive("fgvc-aircraft-2013b.tar.gz", "d4acdd33327262359767eeaa97a4f732", _URL),),
)
def aircraft(folder: Path) -> Dataset:
    """FGVC-Aircraft: first half of the variants train, second half test."""
    data = descend(folder, "data") / "data"
    names = [" ".join(row) for row in table(data / "variants.txt")]
    label = {name: position for position, name in enumerate(names)}
    boxes: dict[str, Box] = {
        row[0]: (float(row[1]), float(row[2]), float(row[3]), float(row[4])) for row in table(data / "images_box.txt")
    }
    # The official train, val and test lists divide images of the same variants; here variants are divided.
    lists = [table(data / f"images_variant_{part}.txt") for part in ("train", "val", "test")]
    records = [
        Record(
            data / "images" / f"{image}.jpg", number, "train" if number < len(names) // 2 else "test", box=boxes[image]
        )
        for image, number in sorted((row[0], label[" ".join(row[1:])]) for rows in lists for row in rows)
    ]
    return Dataset("aircraft", records, names)
