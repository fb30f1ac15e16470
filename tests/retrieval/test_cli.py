"""`sumpool index` and `sumpool search` on real files with a tiny model."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool.backbones import create_backbone
from sumpool.cli import main
from sumpool.embedder import Embedder
from sumpool.pooling import create_pooling
from sumpool.retrieval import Index

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 50, 220)}


def save_model(folder: Path, seed: int = 0, pooling: str = "gsp", norm: str = "unit") -> None:
    torch.manual_seed(seed)
    settings = {"prototypes": 4} if pooling == "gsp" else {}
    Embedder(create_backbone("tiny"), create_pooling(pooling, in_features=32, dim=16, **settings), norm).save(folder)


def paint(path: Path, colour: tuple[int, int, int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-25, 25, (48, 48, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(noise + colour, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    save_model(tmp_path / "model")
    for name, colour in COLOURS.items():
        for i in range(4):
            paint(tmp_path / "images" / name / f"{i}.png", colour, i)
    paint(tmp_path / "query.png", COLOURS["green"], seed=99)
    return tmp_path


def index(work: Path, *flags: str) -> int:
    return main(["index", str(work / "model"), str(work / "images"), "-o", str(work / "index"), *flags])


def search(work: Path, *flags: str) -> int:
    return main(["search", str(work / "index"), str(work / "query.png"), *flags])


@pytest.mark.parametrize(("norm", "distance"), [("unit", "cosine"), ("lipschitz", "euclidean")])
def test_the_index_compares_as_the_model_does(work: Path, norm: str, distance: str) -> None:
    save_model(work / "model", norm=norm)
    assert index(work) == 0
    assert Index.load(work / "index").distance == distance


def test_index_then_search(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert index(work) == 0
    assert "12 images (12 embedded, 0 removed), exact search" in capsys.readouterr().out
    assert search(work, "-k", "5") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if ".png" in line]
    assert len(lines) == 5
    assert all("green" in line for line in lines[:4])
    scores = [float(line.split("│")[2]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    embedder, stored = Embedder.load(work / "model"), Index.load(work / "index")
    truth = stored.search(embedder.embed_files([work / "query.png"], progress=False), k=1)
    assert scores[0] == pytest.approx(float(truth.scores[0, 0]), abs=1e-4)


def test_contact_sheet(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index(work)
    assert search(work, "-k", "3", "--sheet", str(work / "out" / "sheet.png")) == 0
    with Image.open(work / "out" / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        with_maps = sheet.height
        assert sheet.width > 4 * 160
        green = np.asarray(sheet.convert("RGB"))[8 + 28 + 80, 8 + 80]
    assert green.argmax() == 1
    save_model(work / "model", pooling="gmp")
    index(work, "--rebuild")
    search(work, "-k", "3", "--sheet", str(work / "plain.png"))
    with Image.open(work / "plain.png") as sheet:
        assert sheet.height < with_maps
    assert "the query and 3 images" in capsys.readouterr().out


def test_options(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index(work)
    capsys.readouterr()
    assert search(work, "-k", "12", "--expand", "2", "--rerank", "--false-match-rate", "0.05") == 0
    out = capsys.readouterr().out
    threshold = Index.load(work / "index").threshold(0.05)
    assert f"at least {threshold:.4f}" in out
    for line in out.splitlines():
        if ".png" in line:
            score, match = line.split("│")[2:4]
            assert (match.strip() == "yes") == (float(score) >= threshold)


def test_an_index_is_brought_up_to_date(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index(work)
    (work / "images" / "red" / "0.png").unlink()
    paint(work / "images" / "green" / "1.png", COLOURS["blue"], 77)
    paint(work / "images" / "green" / "new.png", COLOURS["green"], 78)
    capsys.readouterr()
    assert index(work) == 0
    assert "12 images (2 embedded, 2 removed)" in capsys.readouterr().out
    assert index(work) == 0
    assert "12 images (0 embedded, 0 removed)" in capsys.readouterr().out
    stored = Index.load(work / "index")
    fresh = Embedder.load(work / "model").embed_files(
        [work / "images" / record["path"] for record in stored.records], progress=False
    )
    assert np.asarray(stored.embeddings) == pytest.approx(fresh.numpy(), abs=1e-6)
    assert sorted(record["path"] for record in stored.records) == sorted(
        path.relative_to(work / "images").as_posix() for path in (work / "images").rglob("*.png")
    )


def test_another_model_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index(work)
    save_model(work / "other", seed=1)
    assert search(work, "--model", str(work / "other")) == 2
    assert "their embeddings cannot be compared" in capsys.readouterr().err
    save_model(work / "model", seed=1)
    assert index(work) == 2
    assert "was made by another model" in capsys.readouterr().err
    assert search(work) == 2
    assert index(work, "--rebuild") == 0
    assert search(work) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda work: (work / "images" / "red" / "broken.jpg").write_bytes(b"no image"), "red/broken.jpg"),
        (lambda work: [path.unlink() for path in (work / "images").rglob("*.png")], "holds no image files"),
    ],
)
def test_mistakes_are_one_sentence(work: Path, change, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    change(work)
    assert index(work) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (work / "index").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "annoy"], "backend must be one of exact, hnsw, ivfpq, got 'annoy'"),
        (["--backend", "hnsw"], "hnsw and ivfpq need FAISS"),
        (["-o", "query.png"], "query.png is a file"),
        (["-o", "images"], "images is neither empty nor an index"),
    ],
)
def test_mistakes_are_found_before_embedding(
    work: Path, flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(Embedder, "embed_files", lambda *args, **settings: pytest.fail("images were embedded"))
    assert index(work, *flags) == 2
    assert message in capsys.readouterr().err


def test_names_are_shown_as_they_are(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither read as markup nor cut where the output is narrow."""
    long = "a" * 200 + ".png"
    for path in ("[bold]green/x[", "[bold]green/:smile:"):
        paint(work / "images" / path / "y].png", COLOURS["green"], 5)
    paint(work / "images" / "green" / long, COLOURS["green"], 6)
    index(work)
    capsys.readouterr()
    assert search(work, "-k", "15") == 0
    out = capsys.readouterr().out
    assert "[bold]green/x[/y].png" in out
    assert "[bold]green/:smile:/y].png" in out
    assert "…" not in out
    assert out.count("a") > 200


def test_missing_parts(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(work) == 2
    assert "is not an index" in capsys.readouterr().err
    assert main(["index", str(work / "model"), str(work / "nowhere"), "-o", str(work / "index")]) == 2
    assert "no folder at" in capsys.readouterr().err
    index(work)
    assert index(work, "--backend", "hnsw") == 2
    assert "is for exact search" in capsys.readouterr().err
    assert index(work, "--backend", "hnsw", "--rebuild", "--half") == 0
    assert search(work) == 0
    capsys.readouterr()
    assert search(work, "--expand", "-1") == 2
    assert "expand must be a number of neighbours" in capsys.readouterr().err
    (work / "query.png").unlink()
    assert search(work) == 2
