"""`sumpool evaluate` on a model of the tiny backbone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool.backbones import create_backbone
from sumpool.cli import main
from sumpool.data import CentreCrop, load_dataset
from sumpool.embedder import Embedder
from sumpool.pooling import create_pooling
from sumpool.retrieval import retrieval_metrics


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    backbone = create_backbone("tiny")
    embedder = Embedder(backbone, create_pooling("gem", backbone.out_features, 8))
    folder = tmp_path_factory.mktemp("model")
    embedder.save(folder)
    return folder


def test_table_and_file_hold_the_metrics(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = tmp_path / "deep" / "numbers.json"
    assert main(["evaluate", str(model), "toy", "--json", str(numbers), "--batch-size", "7", "--device", "cpu"]) == 0
    shown, written = capsys.readouterr().out, json.loads(numbers.read_text())
    embedder = Embedder.load(str(model)).eval()
    test = load_dataset("toy").split("test").transformed(CentreCrop(embedder.backbone.preprocessing))
    with torch.no_grad():
        vectors = torch.cat([embedder(test[row][0][None]).vector for row in range(len(test))])
    expected = retrieval_metrics(vectors, test.labels)
    assert list(written["metrics"]) == ["p@1", "p@r", "map@r", "r@1", "r@2", "r@4", "r@8"]
    for name, value in written["metrics"].items():
        assert value == pytest.approx(expected[name], abs=1e-6)
        assert f"{value:.4f}" in shown
    assert written["images"] == len(test)
    assert written["fingerprint"] == embedder.fingerprint()


def test_lengths_count_where_the_norm_keeps_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = create_backbone("tiny")
    embedder = Embedder(backbone, create_pooling("gap", backbone.out_features, 8), "lipschitz")
    embedder.pooling.load_state_dict({name: 0.1 * value for name, value in embedder.pooling.state_dict().items()})
    embedder.save(tmp_path / "model")
    assert main(["evaluate", str(tmp_path / "model"), "toy", "--json", str(tmp_path / "numbers.json")]) == 0
    test = load_dataset("toy").split("test").transformed(CentreCrop(backbone.preprocessing))
    vectors = embedder.embed(torch.stack([test[row][0] for row in range(len(test))]))
    found = json.loads((tmp_path / "numbers.json").read_text())["metrics"]["map@r"]
    assert found == pytest.approx(retrieval_metrics(vectors, test.labels, distance="euclidean")["map@r"], abs=1e-6)
    assert found != pytest.approx(retrieval_metrics(vectors, test.labels)["map@r"], abs=1e-3)


def test_settings_splits_and_metrics_by_choice(model: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    command = ["evaluate", str(model), "toy", "--split", "all", "--metrics", "r@3", "--json", str(numbers)]
    assert main([*command, "--set", "per_class=3"]) == 0
    written = json.loads(numbers.read_text())
    assert list(written["metrics"]) == ["r@3"]
    assert written["images"] == len(load_dataset("toy", per_class=3))


def test_titles_and_numbers_of_any_kind(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        (tmp_path / "[red]set" / name).mkdir(parents=True)
        for seed in range(2):
            picture = np.random.default_rng(seed).integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / "[red]set" / name / f"{seed}.png")
    command = ["evaluate", str(model), str(tmp_path / "[red]set"), "--split", "all", "--metrics", "r@" + "9" * 20]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "[red]set" in shown
    assert "1.0000" in shown


def test_a_run_means_its_best_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "environment.json").write_text("{}")
    assert main(["evaluate", str(tmp_path), "toy"]) == 2
    assert "has no best model yet" in capsys.readouterr().err
    (tmp_path / "best").symlink_to(model)
    assert main(["evaluate", str(tmp_path), "toy", "--metrics", "p@1"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "--metrics", "p@2"], "unknown metric 'p@2'"),
        (["toy", "--device", "gpu"], "unknown device 'gpu'"),
        (["toy", "--split", "tset"], "did you mean 'test'"),
        (["toy", "--set", "per_class"], "KEY=VALUE"),
        (["tyo"], "did you mean 'toy'"),
    ],
)
def test_mistakes_get_one_sentence(
    words: list[str], message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
