"""One's own images: folders, manifests, packs, and what can be wrong with them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sumpool.data import Dataset, Record, load_dataset, read_pack, remarks, write_pack
from sumpool.data.checks import require_sound
from sumpool.errors import InputError

Picture = Callable[..., Image.Image]
MakeFolder = Callable[[Path], Path]
Load = Callable[[str], Dataset]


def test_folder_splits_by_class(tmp_path: Path, make_folder: MakeFolder) -> None:
    dataset = load_dataset(str(make_folder(tmp_path / "animals")))
    assert dataset.split("train").classes == ["ant", "bee"]
    assert dataset.split("test").classes == ["cat", "dog"]
    assert load_dataset(str(tmp_path / "animals"), test_share=0.25).split("test").classes == ["dog"]


def test_folder_with_split_folders(tmp_path: Path, make_folder: MakeFolder) -> None:
    for part in ("train", "query", "gallery"):
        make_folder(tmp_path / "set" / part)
    dataset = load_dataset(str(tmp_path / "set"))
    assert len(dataset.split("train")) == 12
    assert len(dataset.split("test").queries()) == len(dataset.split("test").gallery()) == 12


def test_folder_ignores_what_is_no_image(tmp_path: Path, make_folder: MakeFolder) -> None:
    root = make_folder(tmp_path / "animals")
    (root / "ant" / "notes.txt").write_text("x")
    (root / "ant" / ".hidden.jpg").write_text("x")
    (root / ".cache").mkdir()
    assert len(load_dataset(str(root))) == 12


def test_empty_folders_are_named(tmp_path: Path, make_folder: MakeFolder) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no images in sub-folders: expected empty/CLASS/IMAGE\.jpg"):
        load_dataset(str(tmp_path / "empty"))
    (make_folder(tmp_path / "animals") / "cow").mkdir()
    with pytest.raises(InputError, match="animals/cow has no images"):
        load_dataset(str(tmp_path / "animals"))


def test_a_class_with_one_image_is_remarked(tmp_path: Path, make_folder: MakeFolder) -> None:
    root = make_folder(tmp_path / "animals")
    assert remarks(load_dataset(str(root))) == []
    for number in (1, 2):
        (root / "bee" / f"{number}.jpg").unlink()
    (remark,) = remarks(load_dataset(str(root)))
    assert remark.startswith("1 of 4 classes have one image, for example 'bee'")


def test_manifest_gives_splits_roles_and_boxes(load: Load) -> None:
    dataset = load("manifest")
    assert dataset.split("val").classes == ["bee"]
    assert len(dataset.split("test").queries()) == 2
    assert [record.box for record in dataset.records[:2]] == [None, (1, 2, 30, 20)]


def test_parquet_manifest_equals_csv(tmp_path: Path, load: Load) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the Parquet reader needs pyarrow")
    from pyarrow import csv, parquet

    source = load("manifest").records[0].source
    assert isinstance(source, Path)
    table = csv.read_csv(source.parents[1] / "list.csv", convert_options=csv.ConvertOptions(strings_can_be_null=True))
    assert isinstance(table, pyarrow.Table)
    parquet.write_table(table, source.parents[1] / "list.parquet")
    assert load_dataset(str(source.parents[1] / "list.parquet")).records == load("manifest").records
    (tmp_path / "bad.parquet").write_bytes(b"PAR?")
    with pytest.raises(InputError, match=r"bad\.parquet is not a Parquet file"):
        load_dataset(str(tmp_path / "bad.parquet"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class\na,b\n", "needs the columns path and label, got file, class"),
        ("", "needs the columns path and label, got none"),
        ("path,label\n", "has no rows"),
        ("path,label\na.jpg,\n", "row 1 lacks a path or a label"),
        ("path,label,split\na.jpg,x,dev\n", "row 1 has 'dev': expected one of train, val, test"),
        ("path,label,role\na.jpg,x,both\nb.jpg,x,probe\n", "row 2 has 'probe': expected one of both, query, gallery"),
        ("path,label,box\na.jpg,x,1 2 3\n", "row 1 has box '1 2 3': expected 'left top right bottom'"),
        ("path,label,box\na.jpg,x,5 5 2 9\n", "right and bottom must be beyond left and top"),
        ("path,label\na.jpg,x\na.jpg,x\n", r"lists \S+a\.jpg twice"),
        ("path,label,role\na.jpg,x,query\nb.jpg,y,gallery\n", "queries of class 'x' but no gallery image of it"),
    ],
)
def test_bad_manifests_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_dataset(str(tmp_path / "list.csv"))


@pytest.mark.parametrize("content", ["path,label\nä.jpg,x\n".encode("latin-1"), b'path,label\n"' + b"a" * 140_000])
def test_a_manifest_that_is_no_table_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"list\.csv is not a CSV table in UTF-8 \(.*\): save it as such"):
        load_dataset(str(tmp_path / "list.csv"))


def test_one_image_may_have_several_boxes() -> None:
    records = [Record(Path("a.jpg"), 0, box=(0, 0, 5, 5)), Record(Path("a.jpg"), 0, box=(5, 5, 9, 9))]
    assert len(require_sound(Dataset("boxes", records, ["x"]))) == 2


def test_pack_keeps_everything(tmp_path: Path, load: Load) -> None:
    before = load("manifest")
    path = write_pack(before, tmp_path / "small.npz", side=15)
    after = read_pack(path)
    for old, new in zip(before.records, after.records, strict=True):
        assert (new.label, new.split, new.role) == (old.label, old.split, old.role)
        assert new.box == (None if old.box is None else pytest.approx([value / 2 for value in old.box]))
        assert old.title in new.title
    assert after.class_names == before.class_names
    assert after.image(3).size == (20, 15)
    gray = [dataset.image(3).convert("L").resize((20, 15), Image.Resampling.BILINEAR) for dataset in (before, after)]
    assert np.abs(np.asarray(gray[0], float) - np.asarray(gray[1], float)).mean() < 4


def test_pack_keeps_small_jpegs_byte_for_byte(tmp_path: Path, load: Load) -> None:
    dataset = load("folder")
    packed = read_pack(write_pack(dataset, tmp_path / "same.npz", side=256))
    source = dataset.records[5].source
    assert isinstance(source, Path)
    assert packed.records[5].source.tobytes() == source.read_bytes()
    assert isinstance(packed.records[5].source.base, np.memmap)  # mapped, not read


def test_pack_is_upright(tmp_path: Path, picture: Picture) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "set" / "a").mkdir(parents=True)
    picture(0, (40, 30)).save(tmp_path / "set" / "a" / "turned.jpg", exif=exif)
    dataset = load_dataset(str(tmp_path / "set"))
    assert read_pack(write_pack(dataset, tmp_path / "set.npz")).image(0).size == dataset.image(0).size == (30, 40)


def test_a_pack_with_a_bad_image_is_not_written(tmp_path: Path, make_folder: MakeFolder) -> None:
    root = make_folder(tmp_path / "animals")
    (root / "cat" / "1.jpg").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"cat/1\.jpg is not in a format"):
        write_pack(load_dataset(str(root)), tmp_path / "x.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["animals"]


ENCODED = {"jpeg": np.zeros(5, np.uint8), "labels": np.array([0]), "class_names": np.array(["a"])}
WHOLE = {**ENCODED, "offsets": np.array([0, 5])}


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 6, 6, 3), np.uint8)


@pytest.mark.parametrize("compressed", [False, True])
def test_packs_of_pixels(tmp_path: Path, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    x, y, names = pixels(6), np.array([0, 0, 1, 1, 2, 2]), np.array(["a", "b", "c"])
    save(tmp_path / "two.npz", x_train=x[:4], y_train=y[:4], x_test=x[4:], y_test=y[4:], fine_names=names)
    save(tmp_path / "one.npz", x=x, y=y, class_names=names, is_eval=y == 2)
    for file in ("two.npz", "one.npz"):
        dataset = load_dataset(str(tmp_path / file))
        assert [record.split for record in dataset.records] == ["train"] * 4 + ["test"] * 2
        assert np.array_equal(dataset.records[5].source, x[5])
        assert dataset.split("test").classes == ["c"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(1)}, "has none of the arrays jpeg, x_train, x: got y"),
        ({"x": pixels(2), "y": np.zeros(2, int)}, "has no array 'class_names'"),
        ({"x": pixels(2), "y": np.zeros(3, int), "class_names": np.array(["a"])}, "has 2 images, but 3 labels"),
        ({**WHOLE, "labels": np.array(["a"])}, "needs a row of whole numbers as 'labels', got <U1"),
        ({**WHOLE, "labels": np.zeros(1)}, "needs a row of whole numbers as 'labels', got float64"),
        ({**WHOLE, "labels": np.zeros((1, 1), int)}, r"whole numbers as 'labels', got int64 of shape \(1, 1\)"),
        ({**WHOLE, "labels": np.array(0)}, r"whole numbers as 'labels', got int64 of shape \(\)"),
        ({**WHOLE, "offsets": np.array(["0", "5"])}, "needs a row of whole numbers as 'offsets'"),
        ({**WHOLE, "file_names": np.array([], str)}, "has 1 images, but 0 file_names"),
        ({**WHOLE, "roles": np.array(["both"] * 2)}, "has 1 images, but 2 roles"),
        ({**WHOLE, "roles": np.array(["probe"])}, "has 'probe' in roles: expected both, query, gallery"),
        ({**WHOLE, "splits": np.array(["dev"])}, "has 'dev' in splits: expected train, val, test"),
        ({**WHOLE, "boxes": np.zeros((1, 3))}, "needs boxes of four numbers, got 3"),
        ({"x": pixels(1) / 255, "y": np.zeros(1, int)}, "needs uint8 pixels N×H×W or N×H×W×3 as 'x', got float64"),
        ({"x": pixels(1)[0, 0], "y": np.zeros(6, int)}, r"needs uint8 pixels .* got uint8 of shape \(6, 3\)"),
        ({"x": pixels(1), "y": np.array([4]), "class_names": np.array(["a"])}, "labels 4 to 4, but 1 class names"),
        ({**ENCODED, "offsets": np.array([0, 9])}, "needs 2 ascending offsets up to 5"),
        ({"x": np.array([{}], object), "y": np.zeros(1, int)}, "cannot be read"),
    ],
)
def test_bad_packs_are_one_sentence(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_dataset(str(tmp_path / "bad.npz"))


def test_a_file_that_is_no_pack_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputError, match=r"text\.npz cannot be read"):
        load_dataset(str(tmp_path / "text.npz"))


def test_an_unknown_name_is_answered() -> None:
    with pytest.raises(InputError, match="unknown dataset 'cab': did you mean 'cub'"):
        load_dataset("cab")


@pytest.mark.parametrize("name", ["folder", "manifest", "pack"])
def test_own_images_need_a_path(name: str) -> None:
    with pytest.raises(InputError, match=f"dataset '{name}' needs a path"):
        load_dataset(name)
