"""Cars196 (Krause et al. 2013).

The annotations are a MATLAB file. SciPy reads it without pickle and is needed only here, so it is an optional package
rather than a second MATLAB reader to maintain.
"""

from pathlib import Path
from typing import Any

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.data.sets.official import Archive, descend, official
from sumpool.errors import InputError


@official(
    "cars",
    folder="cars196",
    published={"train": (8054, 98), "test": (8131, 98)},
    archives=(
        Archive("car_ims.tgz", "d5c8f0aa497503f355e17dc7886c3f14"),
        Archive("cars_annos.mat", "b407c6086d669747186bd1d764ff9dbc"),
    ),
)
def cars(folder: Path) -> Dataset:
    """Cars196: car models, first half of the models train, second half test."""
    folder = descend(folder, "cars_annos.mat")
    content = _load_mat(folder / "cars_annos.mat")
    names = [str(name) for name in content["class_names"]]
    records = []
    for row in content["annotations"]:
        label = int(row["class"]) - 1
        box = (float(row["bbox_x1"]), float(row["bbox_y1"]), float(row["bbox_x2"]), float(row["bbox_y2"]))
        split = "train" if label < len(names) // 2 else "test"
        records.append(Record(folder / str(row["relative_im_path"]), label, split, box=box))
    return Dataset("cars", records, names)


def _load_mat(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("reading Cars196 needs SciPy: pip install 'sumpool[data]'") from None
    content: dict[str, Any] = loadmat(path, squeeze_me=True)
    return content
