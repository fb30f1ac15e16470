"""`sumpool report` and `sumpool compare` on real runs."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from sumpool.cli import main
from sumpool.evaluation.trial import load_embedded, run_trial, save_embedded
from sumpool.training.config import TrainConfig


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trainings of two steps: two of glyphs, one of toy."""
    folder = tmp_path_factory.mktemp("runs")
    small = {
        "backbone": "tiny", "dim": 8, "loss": "contrastive", "augment": "none", "classes_per_batch": 2,
        "images_per_class": 2, "steps": 2, "validate_every": 1,
    }  # fmt: skip
    glyphs = {"data_settings": {"per_class": 4, "classes": 15}}
    configs = {
        "gap": TrainConfig("glyphs", pooling="gap", **glyphs, **small),  # type: ignore[arg-type]
        "gmp": TrainConfig("glyphs", pooling="gmp", **glyphs, **small),  # type: ignore[arg-type]
        "on_test": TrainConfig("glyphs", pooling="gap", validate_on="test", **glyphs, **small),  # type: ignore[arg-type]
    }
    for name, config in configs.items():
        run_trial(config, folder / name)
    return {name: folder / name for name in configs}


def test_any_runs_are_combined_in_every_format(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "new" / f"report.{ending}" for ending in ("html", "md", "csv", "tex")]
    out = [text for file in files for text in ("-o", str(file))]
    assert main(["report", *map(str, runs.values()), *out, "--title", "Three runs"]) == 0
    assert "glyphs (classes 15, per_class 4), single trainings: gap, gmp\n" in capsys.readouterr().out
    page = files[0].read_text()
    assert page.count('class="example"') == 9
    assert page.count("<polyline") == 3
    assert len(page) < 3_000_000
    for file in files:
        text = file.read_text().lower()
        assert "gap" in text
        assert "models were selected on the test set" in text
    assert "Three runs" in page


def test_runs_of_one_name_get_their_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "gap"
    copy.symlink_to(runs["gap"])
    assert main(["report", str(runs["gap"]), str(copy), "-o", str(tmp_path / "report.md")]) == 0
    text = (tmp_path / "report.md").read_text().replace("\\", "")
    assert f"gap ({copy})" in text
    assert f"gap ({runs['gap']})" in text


def test_mistakes_are_one_sentence(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, file = str(runs["gap"]), str(tmp_path / "report.html")
    for arguments, said in [
        (["report", str(tmp_path), "-o", file], "holds neither a protocol"),
        (["report", good, "-o", "report.pdf"], "a report ends in .html, .md, .csv, .tex"),
        (["report", good, "-o", file, "--reference", "gab"], "did you mean 'gap'?"),
        (["compare", good, str(tmp_path)], "holds neither a protocol"),
        (["compare", good, f"{good}:gmp"], "has no method 'gmp', it has gap"),
    ]:
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_compare_says_what_can_be_told(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs["gap"]), str(runs["gap"])]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "P@1, P@R, MAP@R: no difference can be told." in out
    assert "2 methods, 2 trainings; 24 queries of 6 classes." in out
    assert "the intervals cover only the choice of queries" in out


def test_compare_names_the_better_one(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    better = tmp_path / "better"
    shutil.copytree(runs["gap"], better)
    embedded = load_embedded(better)
    save_embedded(embedded._replace(vectors=torch.eye(int(embedded.labels.max()) + 1)[embedded.labels]), better)
    assert main(["compare", str(better), str(runs["gap"])]) == 0
    assert "P@1, P@R, MAP@R: A is better." in capsys.readouterr().out
    assert main(["compare", str(runs["gap"]), f"{better}:better"]) == 0
    assert "P@1, P@R, MAP@R: B is better." in capsys.readouterr().out


def test_compare_refuses_what_is_not_alike(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = yaml.safe_load((runs["gap"] / "config.yaml").read_text())
    (other / "config.yaml").write_text(yaml.safe_dump({**config, "dataset": "toy"}))
    (other / "test.safetensors").write_bytes((runs["gap"] / "test.safetensors").read_bytes())
    assert main(["compare", str(runs["gap"]), str(other)]) == 2
    assert "A and B cannot be compared: dataset is glyphs for A and toy for B" in capsys.readouterr().err
    assert main(["compare", str(runs["gap"]), str(runs["on_test"])]) == 2
    assert "only B was selected on the test classes" in capsys.readouterr().err


def with_settings(folder: Path, run: Path, **data: object) -> Path:
    """The same scores, as if of a run with other settings of the data."""
    shutil.copytree(run, folder)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (folder / "config.yaml").write_text(
        yaml.safe_dump({**config, "seed": 7, "data_settings": {**config["data_settings"], **data}})
    )
    return folder


def test_other_images_with_the_same_labels_are_not_paired(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gap, other = str(runs["gap"]), str(with_settings(tmp_path / "other", runs["gap"], seed=1))
    assert main(["compare", gap, other]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(
            "A and B cannot be compared: their images differ, classes 15, per_class 4 for A and "
            "classes 15, per_class 4, seed 1 for B"
        )
    )
    assert main(["report", gap, other, "-o", str(tmp_path / "report.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "glyphs (classes 15, per_class 4), single trainings: gap",
        "glyphs (classes 15, per_class 4, seed 1), single trainings: other",
    ]
    same = with_settings(tmp_path / "same", runs["gap"], seed=0)  # the default, and another seed of the training
    assert main(["compare", gap, str(same)]) == 0


def test_a_constant_difference_has_an_infinite_effect(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best, worst = tmp_path / "best", tmp_path / "worst"
    for folder in (best, worst):
        shutil.copytree(runs["gap"], folder)
    embedded = load_embedded(best)
    labels = embedded.labels
    save_embedded(embedded._replace(vectors=torch.eye(int(labels.max()) + 1)[labels]), best)
    # Each image lies where one of every other class does: none of its own is near.
    number = torch.arange(len(labels)) % 4
    save_embedded(embedded._replace(vectors=torch.eye(4)[number]), worst)
    assert main(["compare", str(worst), str(best)]) == 0
    assert "−∞" in capsys.readouterr().out
