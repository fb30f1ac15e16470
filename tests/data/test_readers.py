"""Each official layout, from archive to records."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sumpool.data import DATASETS, Dataset
from sumpool.data.checks import counts
from sumpool.data.sets.official import OfficialSet
from sumpool.errors import InputError

OFFICIAL = [name for name, entry in DATASETS.items() if isinstance(entry, OfficialSet)]
Load = Callable[[str], Dataset]
COUNTS = {
    "cub": {"train": (6, 2), "test": (6, 2)},
    "cars": {"train": (4, 2), "test": (4, 2)},
    "sop": {"train": (4, 2), "test": (6, 3)},
    "inshop": {"train": (6, 2), "test": (6, 2), "query": (2, 2), "gallery": (4, 2)},
    "aircraft": {"train": (6, 2), "test": (6, 2)},
    "cifar10": {"train": (20, 4), "test": (4, 4)},
    "cifar100": {"train": (300, 100), "test": (100, 100)},
    "mnist": {"train": (20, 10), "test": (10, 10)},
    "fashion-mnist": {"train": (20, 10), "test": (10, 10)},
    "omniglot": {"train": (12, 4), "test": (6, 2)},
}


def test_every_official_set_has_an_archive_to_read(makers: dict[str, object]) -> None:
    assert list(makers) == OFFICIAL == list(COUNTS)


@pytest.mark.parametrize("name", OFFICIAL)
def test_reads_the_official_layout(load: Load, name: str) -> None:
    assert counts(load(name)) == COUNTS[name]


@pytest.mark.parametrize("name", OFFICIAL)
def test_published_counts_are_required(root: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} is not complete: train has \d+ images .* published \d+"):
        DATASETS[name](root=root)


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_missing_set_says_how_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not in .* `sumpool data (download|prepare) {name}"):
        DATASETS[name](root=tmp_path)


def test_no_data_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUMPOOL_DATA", raising=False)
    with pytest.raises(InputError, match="pass --data-root FOLDER or set SUMPOOL_DATA"):
        DATASETS["cub"]()


def test_boxes_are_corners(load: Load) -> None:
    assert load("cub").records[0].box == (5, 6, 25, 16)  # written as x y width height
    assert load("cars").records[0].box == (3, 4, 30, 25)
    assert load("inshop").records[0].box == (4, 5, 35, 28)
    assert load("aircraft").records[0].box == (2, 3, 30, 20)


def test_inshop_separates_query_and_gallery(load: Load) -> None:
    test = load("inshop").split("test")
    queries, gallery = test.queries(), test.gallery()
    assert test.has_roles
    assert (len(queries), len(gallery)) == (2, 4)
    assert queries.labels.tolist() == [0, 1]
    assert gallery.labels.tolist() == [0, 0, 1, 1]


def test_cifar_planes_become_pixels(load: Load, root: Path) -> None:
    raw = np.fromfile(root / "cifar100" / "cifar-100-binary" / "train.bin", np.uint8)[:3074]
    first = load("cifar100").records[0]
    assert first.label == raw[1]
    assert np.array_equal(first.source, raw[2:].reshape(3, 32, 32).transpose(1, 2, 0))


def test_aircraft_variants_may_contain_spaces(load: Load) -> None:
    assert load("aircraft").class_names == ["707-320", "A 300", "Falcon 2000", "Yak-42"]


def test_a_cut_cifar_file_is_named(tmp_path: Path, root: Path) -> None:
    source = root / "cifar100" / "cifar-100-binary"
    folder = tmp_path / "cifar100"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes()[: -7 if file.suffix == ".bin" else None])
    with pytest.raises(InputError, match=r"train\.bin has \d+ bytes, not a multiple of 3074"):
        DATASETS["cifar100"](root=tmp_path)


def test_a_damaged_idx_file_is_named(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for file in (root / "mnist").iterdir():
        (folder / file.name).write_bytes(file.read_bytes()[:40])
    with pytest.raises(InputError, match="is not a complete idx file"):
        DATASETS["mnist"](root=tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cub", "classes.txt"),
        ("cub", "image_class_labels.txt"),
        ("cub", "bounding_boxes.txt"),
        ("cars", "cars_annos.mat"),
        ("sop", "Ebay_test.txt"),
        ("inshop", "list_eval_partition.txt"),
        ("inshop", "list_bbox_inshop.txt"),
        ("aircraft", "variants.txt"),
        ("aircraft", "images_box.txt"),
        ("aircraft", "images_variant_val.txt"),
    ],
)
def test_a_cut_list_names_the_folder(tmp_path: Path, root: Path, name: str, file: str) -> None:
    shutil.copytree(root / name, tmp_path / name)
    (path,) = (tmp_path / name).rglob(file)
    content = path.read_bytes().strip()
    path.write_bytes(content[: len(content) // 2 if path.suffix == ".mat" else content.rindex(b" ")])
    with pytest.raises(
        InputError, match=rf"{name} in \S+{name} is damaged or incomplete \(\w+: .*\): prepare it again"
    ):
        DATASETS[name](root=tmp_path, verify=False)


def test_a_pack_without_super_classes_makes_no_collage(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 32, 32, 3), np.uint8), np.arange(2)
    parts = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "cifar100.npz", **parts, fine_names=np.array(["a", "b"]))
    with pytest.raises(InputError, match=r"cifar100\.npz has no array 'fine_to_coarse', which the collage needs"):
        DATASETS["cifar-collage"](root=tmp_path, verify=False)


def test_a_missing_list_is_named(tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "cub"
    folder.mkdir()
    (folder / "images.txt").write_text("1 a/b.jpg\n")
    with pytest.raises(InputError, match=r"classes\.txt is missing"):
        DATASETS["cub"](root=tmp_path)
