"""`sumpool embed`, `explain`, `export` and `list backbones` from the shell."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool import Embedder
from sumpool.backbones import create_backbone
from sumpool.cli import main
from sumpool.pooling import create_pooling


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    Embedder(create_backbone("tiny"), create_pooling("gsp", 32, 8, memory=0)).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("b.png", "a/c.jpg", "a/d.JPEG"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    return tmp_path / "photos"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_embed(model: Path, photos: Path, tmp_path: Path, precision: str) -> None:
    out = tmp_path / "deep" / "vectors.npz"
    assert main(["embed", str(model), str(photos), "--out", str(out), "--precision", precision]) == 0
    with np.load(out, allow_pickle=False) as file:
        assert file["paths"].tolist() == ["a/c.jpg", "a/d.JPEG", "b.png"]
        embedder = Embedder.load(model)
        assert str(file["model"]) == embedder.fingerprint()
        expected = embedder.embed_files([photos / name for name in file["paths"]])
        tolerance = 1e-6 if precision == "float32" else 0.05
        np.testing.assert_allclose(file["embeddings"], expected.numpy(), atol=tolerance)


def test_embed_mistakes(model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["embed", str(model), str(tmp_path / "empty")]) == 2
    assert "holds no image files" in capsys.readouterr().err
    assert main(["embed", str(model), str(tmp_path / "absent")]) == 2
    assert "no folder at" in capsys.readouterr().err
    assert main(["embed", str(tmp_path / "nothing"), str(tmp_path)]) == 2
    capsys.readouterr()
    assert main(["embed", str(model), str(photos), "--device", "abacus"]) == 2
    assert "device 'abacus'" in capsys.readouterr().err
    assert main(["embed", str(model), str(photos), "--out", str(tmp_path)]) == 2
    assert f"Is a directory: '{tmp_path}'" in capsys.readouterr().err
    assert main(["embed", str(model), str(tmp_path), "--precision", "fp8"]) == 2
    assert "did you mean 'fp16'" in capsys.readouterr().err


def test_explain(model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="pictures need pip install 'sumpool[plot]'")
    images = [str(photos / "b.png"), str(photos / "a" / "c.jpg")]
    assert main(["explain", str(model), *images, "--out", str(tmp_path / "out")]) == 0
    assert main(["explain", str(model), *images, "--out", str(tmp_path / "out"), "--pair"]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"001_b.png", "002_c.png", "001_b_c.png"}
    assert main(["explain", str(model), images[0], "--pair"]) == 2
    assert "--pair needs a query" in capsys.readouterr().err


@pytest.mark.slow
def test_export(model: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="export needs pip install 'sumpool[export]'")
    pytest.importorskip("onnxscript", reason="export needs pip install 'sumpool[export]'")
    assert main(["export", str(model), str(tmp_path / "model.onnx")]) == 0
    images = torch.randn(3, 3, 40, 40)
    (found,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"images": images.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), Embedder.load(model).embed(images), rtol=1e-5, atol=1e-5)


def test_list_backbones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "backbones"]) == 0
    shown = capsys.readouterr().out
    assert "bn_inception" in shown
    assert "hf:<model>" in shown
