"""`sumpool sweep` with real, tiny trainings."""

from pathlib import Path

import pytest

from sumpool.cli import main
from sumpool.training.run import Run

TINY = [
    *("toy", "--backbone", "tiny", "--dim", "4", "--loss", "contrastive", "--pooling", "gem", "--device", "cpu"),
    *("--classes-per-batch", "2", "--images-per-class", "2", "--steps", "4", "--validate-every", "2"),
]


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text("lr: [1e-4, 1e-1]\nloss_settings.contrastive.negative_margin: {low: 0.2, high: 0.6}\n")
    return path


def sweep(space: Path, *words: str) -> int:
    return main(["sweep", str(space), *TINY, "--out", str(space.parent / "sweep"), *words])


def test_every_trial_is_a_run(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(space, "--method", "factorial") == 0
    shown = capsys.readouterr().out
    runs = sorted((space.parent / "sweep").glob("trial-*"))
    assert [run.name for run in runs] == ["trial-0000", "trial-0001", "trial-0002", "trial-0003"]
    settings = [(run / "config.yaml").read_text() for run in runs]
    assert ["lr: 0.1\n" in text for text in settings] == [False, False, True, True]
    assert ["negative_margin: 0.6" in text for text in settings] == [False, True, False, True]
    best = max(Run(run).entries()[-1]["best"] for run in runs)
    assert f"{best:.4f}" in shown
    assert "main effect of lr: " in shown
    assert (space.parent / "sweep" / "contour.png").exists()
    assert sweep(space, "--method", "factorial") == 0
    assert "trial-0000: " not in capsys.readouterr().out  # nothing is trained again


def test_an_interrupted_trial_is_continued(
    space: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sumpool.training.loop import Training

    save, saved = Training.save, []

    def interrupting(self: Training) -> None:
        save(self)
        saved.append((self.run.folder.name, self.step))
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Training, "save", interrupting)
    assert sweep(space, "--trials", "3") == 130
    capsys.readouterr()
    assert sweep(space, "--trials", "3") == 0
    assert capsys.readouterr().out.startswith("trial-0001: ")
    folders = ("trial-0000", "trial-0001", "trial-0003")  # 2 is the second try of 1
    assert saved == [(folder, step) for folder in folders for step in (2, 4)]


def test_a_run_that_diverges_fails_only_its_trial(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space.write_text("lr: [1e-3, 1e+30]\n")
    assert sweep(space, "--method", "grid") == 0
    shown = capsys.readouterr().out
    assert "trial-0001: failed, training failed at step 2: embeddings hold NaN" in shown
    assert "│ 0000 " in shown
    assert "│ 0001 " not in shown


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("lrr: [1, 2]", [], "unknown setting 'lrr': did you mean 'lr'"),
        ("lr: [1, 2", [], "is not YAML"),
        ("", [], "names settings"),
        ("steps: [0, 2]", [], "steps must be at least 1"),
        ("lr: [1, 2]", ["--trials", "0"], "--trials must be at least 1"),
        ("lr: [1, 2]", ["--resume", "x"], "no --resume"),
        ("pooling: [gem, gme]", ["--method", "grid"], "unknown pooling 'gme'"),
    ],
)
def test_mistakes_get_one_sentence(
    content: str, words: list[str], message: str, space: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space.write_text(content)
    assert sweep(space, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
