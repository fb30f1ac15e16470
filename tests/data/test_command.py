"""`sumpool data`, as a user types it."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sumpool.cli import main
from sumpool.data import read_pack
from sumpool.data.sets.official import OfficialSet

Capture = pytest.CaptureFixture[str]
MakeFolder = Callable[[Path], Path]
Makers = dict[str, Callable[[Path], list[Path]]]


def test_info_prints_splits_and_folds(capsys: Capture) -> None:
    assert main(["data", "info", "glyphs", "--set", "per_class=2", "classes=50"]) == 0
    out = capsys.readouterr().out
    assert "glyphs: 100 images of 50 classes" in out
    assert "train        40 images     20 classes, 2 to 2 images a class" in out
    assert "classes disjoint between splits" in out
    assert "4 folds of the training classes (fair protocol): 0–4, 5–9, 10–14, 15–19" in out


def test_info_takes_a_path(tmp_path: Path, make_folder: MakeFolder, capsys: Capture) -> None:
    assert main(["data", "info", str(make_folder(tmp_path / "animals"))]) == 0
    assert "animals: 12 images of 4 classes" in capsys.readouterr().out


def test_info_prints_query_and_gallery(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("SUMPOOL_DATA", str(root))
    assert main(["data", "info", "inshop", "--set", "verify=False"]) == 0
    out = capsys.readouterr().out
    assert "query         2 images      2 classes" in out
    assert "gallery       4 images      2 classes" in out


def test_prepare_unpacks_and_packs(tmp_path: Path, makers: Makers, capsys: Capture) -> None:
    archives = [str(path) for path in makers["cub"](tmp_path)]
    data = tmp_path / "data"
    command = ["data", "prepare", "cub", "--from", *archives, "--data-root", str(data), "--pack", "--side", "20"]
    assert main(command) == 2
    assert "has MD5" in capsys.readouterr().err
    assert main([*command, "--unverified"]) == 0
    assert "cub: 12 images of 4 classes" in capsys.readouterr().out
    assert min(read_pack(data / "cub.npz").image(0).size) == 20
    assert main(["data", "info", "cub", "--data-root", str(data)]) == 2  # the small set is not the published one
    assert "train has 6 images of 2 classes, published 5864 of 100" in capsys.readouterr().err


def test_prepare_packs_anew_from_the_archive(tmp_path: Path, makers: Makers) -> None:
    archives = [str(path) for path in makers["sop"](tmp_path)]
    command = ["data", "prepare", "sop", "--from", *archives, "--data-root", str(tmp_path), "--unverified", "--pack"]
    for side in (10, 20):
        assert main([*command, "--side", str(side)]) == 0
        assert min(read_pack(tmp_path / "sop.npz").image(0).size) == side


def test_prepare_misses_files_that_the_lists_name(tmp_path: Path, makers: Makers, capsys: Capture) -> None:
    images, *lists = makers["inshop"](tmp_path)
    few = tmp_path / "few" / "img.zip"
    few.parent.mkdir()
    with zipfile.ZipFile(images) as source, zipfile.ZipFile(few, "w") as target:
        for name in source.namelist()[:-2]:
            target.writestr(name, source.read(name))
    files = [str(path) for path in (few, *lists)]
    assert main(["data", "prepare", "inshop", "--from", *files, "--data-root", str(tmp_path), "--unverified"]) == 2
    assert "inshop lacks 2 of 12 images, for example" in capsys.readouterr().err


def test_small_images_are_not_packed(tmp_path: Path, makers: Makers, capsys: Capture) -> None:
    files = [str(path) for path in makers["cifar10"](tmp_path)]
    command = ["data", "prepare", "cifar10", "--from", *files, "--data-root", str(tmp_path), "--unverified", "--pack"]
    assert main(command) == 2
    assert "too small to gain from a pack" in capsys.readouterr().err


def test_download_fetches_unpacks_and_reads(
    tmp_path: Path, makers: Makers, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (archive,) = makers["cub"](tmp_path)

    def fetched(url: str, target: Path, md5: str) -> Path:
        assert url.startswith("https://data.caltech.edu/")
        return archive

    monkeypatch.setattr("sumpool.data.prepare.download", fetched)
    monkeypatch.setattr("sumpool.data.prepare.require_md5", lambda path, md5: None)
    monkeypatch.setattr("sumpool.data.sets.official.require_counts", lambda dataset, published: None)
    assert main(["data", "download", "cub", "--data-root", str(tmp_path / "data")]) == 0
    assert "cub: 12 images of 4 classes" in capsys.readouterr().out


def test_check_lists_bad_files(tmp_path: Path, make_folder: MakeFolder, capsys: Capture) -> None:
    root = make_folder(tmp_path / "animals")
    assert main(["data", "check", str(root)]) == 0
    assert "all 12 images can be read" in capsys.readouterr().out
    (root / "bee" / "1.jpg").write_bytes((root / "bee" / "1.jpg").read_bytes()[:-100])
    (root / "cat" / "0.jpg").write_text("hello")
    assert main(["data", "check", str(root)]) == 2
    printed = capsys.readouterr()
    assert "bee/1.jpg cannot be decoded" in printed.out
    assert "cat/0.jpg is not in a format" in printed.out
    assert "2 of 12 images cannot be read" in printed.err


def test_check_names_an_image_of_floating_point(tmp_path: Path, capsys: Capture) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "depth.tif")
    assert main(["data", "check", str(tmp_path)]) == 2
    assert "depth.tif cannot be used: floating-point pixels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["check", "nowhere"], "nowhere is not a folder"),
        (["info", "glyfs"], "unknown dataset 'glyfs': did you mean 'glyphs'"),
        (["info", "toy", "--set", "per_class"], "settings are written KEY=VALUE"),
        (["info", "toy", "--set", "count=3"], "dataset 'toy' has no setting 'count'"),
        (["info", "toy", "--set", "seed=-1"], "seed must be at least 0, got -1"),
        (["info", "toy", "--set", "crop_boxes=True"], "dataset toy has no boxes to crop"),
        (["info", "toy", "--set", "crop_boxes=yes"], "crop_boxes must be true or false, got 'yes'"),
        (["info", "toy", "--set", "in_memory=True"], "in_memory must be a whole number or null, got True"),
        (["info", "toy", "--set", "in_memory=0"], "the short side of shrunk images must be at least 1 pixel, got 0"),
        (["prepare", "cub", "--from", "x.zip", "--side", "0"], "short side of shrunk images must be at least 1 pixel"),
        (["download", "cub", "--side", "-1"], "short side of shrunk images must be at least 1 pixel"),
        (["prepare", "toy", "--from", "x.zip"], "unknown published dataset 'toy'"),
    ],
)
def test_mistakes_are_one_sentence(command: list[str], message: str, capsys: Capture) -> None:
    assert main(["data", *command]) == 2
    assert message in capsys.readouterr().err


def test_list_shows_every_set(capsys: Capture) -> None:
    from sumpool.data import DATASETS

    assert main(["list", "datasets"]) == 0
    shown = capsys.readouterr().out
    for name, entry in DATASETS.items():
        line = next(line for line in shown.splitlines() if line.split()[:1] == [name])
        assert len(line.split()) > 3
        assert OfficialSet.__doc__ not in line
        assert entry.__doc__


def test_seeded_noise_is_not_constant() -> None:
    from sumpool.data import DATASETS

    pixels = np.stack([record.source for record in DATASETS["glyphs"](per_class=1, classes=5).records])
    assert pixels.std((1, 2)).min() > 5
