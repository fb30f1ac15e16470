"""Stanford Online Products (Oh Song et al. 2016)."""

from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.data.sets.official import Archive, descend, official, table

_URL = "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip"


@official(
    "sop",
    folder="Stanford_Online_Products",
    published={"train": (59551, 11318), "test": (60502, 11316)},
    archives=(Archive("Stanford_Online_Products.zip", "7f73d41a2f44250d4779881525aea32e", _URL),),
)
def sop(folder: Path) -> Dataset:
    """Stanford Online Products: the split files of the archive."""
    folder = descend(folder, "Ebay_train.txt")
    rows = [(split, row) for split in ("train", "test") for row in table(folder / f"Ebay_{split}.txt", skip=1)]
    numbers = sorted({int(row[1]) for _, row in rows})
    label = {number: position for position, number in enumerate(numbers)}
    records = [Record(folder / row[3], label[int(row[1])], split) for split, row in rows]
    return Dataset("sop", records, [f"product {number}" for number in numbers])
