"""Small sets in the official layouts, made on the spot."""

import csv
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sumpool.data import DATASETS, Dataset
from sumpool.data.prepare import official_set, prepare_archives
from sumpool.data.sets.official import OfficialSet

OFFICIAL = [name for name, entry in DATASETS.items() if isinstance(entry, OfficialSet)]
GENERATED = {"tokens": {"per_class": 3}, "toy": {"per_class": 3}, "digits": {}}
GENERATED |= {"glyphs": {"per_class": 2, "classes": 20}, "glyph-collage": {"per_class": 2, "classes": 20}}


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """A smooth random RGB image."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def encoded(seed: int, form: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    picture(seed).save(buffer, form)
    return buffer.getvalue()


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def lines(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def make_cub(folder: Path) -> list[Path]:
    names = [f"{number:03d}.Bird_{number}" for number in range(1, 5)]
    images = [(f"{name}/{name}_{copy}.jpg", label) for label, name in enumerate(names, 1) for copy in range(3)]
    rows = range(1, len(images) + 1)
    top = "CUB_200_2011"
    labels = (f"{row} {label}" for row, (_, label) in zip(rows, images, strict=True))
    files = {f"{top}/images/{path}": encoded(row) for row, (path, _) in enumerate(images)}
    files[f"{top}/images.txt"] = lines(*(f"{row} {path}" for row, (path, _) in zip(rows, images, strict=True)))
    files[f"{top}/image_class_labels.txt"] = lines(*labels)
    files[f"{top}/classes.txt"] = lines(*(f"{number} {name}" for number, name in enumerate(names, 1)))
    files[f"{top}/bounding_boxes.txt"] = lines(*(f"{row} 5.0 6.0 20.0 10.0" for row in rows))
    return [tar(folder / "CUB_200_2011.tgz", files)]


def make_cars(folder: Path) -> list[Path]:
    from scipy.io import savemat

    names = np.array(["Audi", "BMW", "Fiat", "Opel"], object)
    rows = [(f"car_ims/{row + 1:06d}.jpg", 3, 4, 30, 25, row % 4 + 1, row % 2) for row in range(8)]
    fields = ["relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test"]
    table = np.array(rows, dtype=[(field, object) for field in fields])
    savemat(folder / "cars_annos.mat", {"annotations": table, "class_names": names})
    images = tar(folder / "car_ims.tgz", {row[0]: encoded(number) for number, row in enumerate(rows)})
    return [images, folder / "cars_annos.mat"]


def make_sop(folder: Path) -> list[Path]:
    head = "image_id class_id super_class_id path"
    train = [f"{row} {row // 2 + 1} 1 chair_final/{row}.JPG" for row in range(4)]
    test = [f"{row} {row // 2 + 11} 2 lamp_final/{row}.JPG" for row in range(6)]
    files = {f"Stanford_Online_Products/{row.split()[3]}": encoded(number) for number, row in enumerate(train + test)}
    files["Stanford_Online_Products/Ebay_train.txt"] = lines(head, *train)
    files["Stanford_Online_Products/Ebay_test.txt"] = lines(head, *test)
    return [zipped(folder / "Stanford_Online_Products.zip", files)]


def make_inshop(folder: Path) -> list[Path]:
    rows = []
    for item in range(4):
        kinds = ("train",) * 3 if item < 2 else ("query", "gallery", "gallery")
        rows += [(f"img/MEN/id_{item:08d}/{copy:02d}.jpg", f"id_{item:08d}", kind) for copy, kind in enumerate(kinds)]
    images = zipped(folder / "img.zip", {row[0]: encoded(number) for number, row in enumerate(rows)})
    partition = folder / "list_eval_partition.txt"
    head = (str(len(rows)), "column names")
    partition.write_bytes(lines(*head, *("   ".join(row) for row in rows)))
    boxes = folder / "list_bbox_inshop.txt"
    boxes.write_bytes(lines(*head, *(f"{row[0]} 1 2 4 5 35 28" for row in rows)))
    return [images, partition, boxes]


def make_aircraft(folder: Path) -> list[Path]:
    names = ["707-320", "A 300", "Falcon 2000", "Yak-42"]
    images = [(f"{row:07d}", names[row % 4]) for row in range(12)]
    top = "fgvc-aircraft-2013b/data"
    files = {f"{top}/images/{image}.jpg": encoded(row) for row, (image, _) in enumerate(images)}
    for part, name in enumerate(("train", "val", "test")):
        members = images[part * 4 : part * 4 + 4]
        files[f"{top}/images_variant_{name}.txt"] = lines(*(f"{image} {variant}" for image, variant in members))
    files[f"{top}/variants.txt"] = lines(*names)
    files[f"{top}/images_box.txt"] = lines(*(f"{image} 2 3 30 20" for image, _ in images))
    return [tar(folder / "fgvc-aircraft-2013b.tar.gz", files)]


def cifar_rows(count: int, labels: int, classes: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    label = np.arange(count)[:, None] % classes
    head = np.concatenate([label // 5, label], 1) if labels == 2 else label
    return np.concatenate([head, rng.integers(0, 256, (count, 3072))], 1).astype(np.uint8).tobytes()


def make_cifar10(folder: Path) -> list[Path]:
    top = "cifar-10-batches-bin"
    files = {f"{top}/data_batch_{number}.bin": cifar_rows(4, 1, 4, number) for number in range(1, 6)}
    files[f"{top}/test_batch.bin"] = cifar_rows(4, 1, 4, 9)
    files[f"{top}/batches.meta.txt"] = lines("cat", "dog", "car", "ship", "")
    return [tar(folder / "cifar-10-binary.tar.gz", files)]


def make_cifar100(folder: Path) -> list[Path]:
    top = "cifar-100-binary"
    files = {f"{top}/train.bin": cifar_rows(300, 2, 100, 1), f"{top}/test.bin": cifar_rows(100, 2, 100, 2)}
    files[f"{top}/fine_label_names.txt"] = lines(*(f"fine{number}" for number in range(100)))
    files[f"{top}/coarse_label_names.txt"] = lines(*(f"coarse{number}" for number in range(20)))
    return [tar(folder / "cifar-100-binary.tar.gz", files)]


def make_mnist(folder: Path) -> list[Path]:
    made = []
    for prefix, count in (("train", 20), ("t10k", 10)):
        pixels = np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)
        shape = np.array([count, 28, 28], ">u4").tobytes()
        labels = (np.arange(count) % 10).astype(np.uint8)
        contents = {
            "images-idx3": b"\0\0\x08\x03" + shape + pixels.tobytes(),
            "labels-idx1": b"\0\0\x08\x01" + shape[:4] + labels.tobytes(),
        }
        for kind, content in contents.items():
            made.append(folder / f"{prefix}-{kind}-ubyte.gz")
            made[-1].write_bytes(gzip.compress(content))
    return made


def make_omniglot(folder: Path) -> list[Path]:
    made = []
    for part, alphabets in (("images_background", ("Greek", "Latin")), ("images_evaluation", ("Tengwar",))):
        characters = [f"{part}/{alphabet}/character0{number}" for alphabet in alphabets for number in (1, 2)]
        names = [f"{character}/0001_0{drawer}.png" for character in characters for drawer in (1, 2, 3)]
        made.append(zipped(folder / f"{part}.zip", {name: encoded(row, "PNG") for row, name in enumerate(names)}))
    return made


MAKERS: dict[str, Callable[[Path], list[Path]]] = {
    "cub": make_cub,
    "cars": make_cars,
    "sop": make_sop,
    "inshop": make_inshop,
    "aircraft": make_aircraft,
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "mnist": make_mnist,
    "fashion-mnist": make_mnist,
    "omniglot": make_omniglot,
}


def make_folder(root: Path) -> Path:
    for label, name in enumerate(("ant", "bee", "cat", "dog")):
        (root / name).mkdir(parents=True)
        for copy in range(3):
            picture(label * 3 + copy).save(root / name / f"{copy}.jpg")
    return root


def make_manifest(root: Path) -> Path:
    make_folder(root)
    with (root / "list.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "split", "role", "box"])
        for name, split in {"ant": "train", "bee": "val", "cat": "test", "dog": "test"}.items():
            for copy in range(3):
                role = "" if split != "test" else ("query" if copy == 0 else "gallery")
                table.writerow([f"{name}/{copy}.jpg", name, split, role, "1 2 30 20" if copy else ""])
    return root / "list.csv"


def make_pack(root: Path) -> Path:
    from sumpool.data import load_dataset, write_pack

    return write_pack(load_dataset(str(make_folder(root / "animals"))), root / "animals.npz", side=20)


@pytest.fixture(scope="session", name="picture")
def picture_fixture() -> Callable[..., Image.Image]:
    return picture


@pytest.fixture(scope="session", name="make_folder")
def make_folder_fixture() -> Callable[[Path], Path]:
    return make_folder


@pytest.fixture(scope="session")
def makers() -> dict[str, Callable[[Path], list[Path]]]:
    return MAKERS


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every official set, prepared from small archives."""
    archives, data = tmp_path_factory.mktemp("archives"), tmp_path_factory.mktemp("data")
    for name in OFFICIAL:
        (archives / name).mkdir()
        prepare_archives(official_set(name), MAKERS[name](archives / name), data, unverified=True)
    return data


@pytest.fixture(scope="session")
def load(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Dataset]:
    """Load a small version of any set of the table."""
    own = tmp_path_factory.mktemp("own")
    paths = {"folder": make_folder(own / "folder"), "manifest": make_manifest(own / "manifest"), "pack": make_pack(own)}

    def loader(name: str) -> Dataset:
        if name in OFFICIAL:
            return DATASETS[name](root=root, verify=False)
        if name in paths:
            return DATASETS[name](root=paths[name])
        if name == "cifar-collage":
            return DATASETS[name](root=root, per_class=2, verify=False)
        return DATASETS[name](**GENERATED[name])

    return loader
