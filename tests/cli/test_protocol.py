"""`sumpool protocol` with real, tiny trainings."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sumpool.cli import main
from sumpool.evaluation.results import load_results

TINY = [
    *("--dataset", "glyphs", "--data_settings.per_class", "4", "--data_settings.classes", "20", "--backbone", "tiny"),
    *("--weights", "null", "--augment", "none", "--dim", "8", "--lr", "1e-3", "--device", "cpu", "--steps", "4"),
    *("--classes-per-batch", "2", "--images-per-class", "2", "--validate-every", "2", "--folds", "2"),
    *("--pooling_settings.memory", "8", "--pooling_settings.prototypes", "4"),
]


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protocol") / "fair"
    assert main(["protocol", "fair", "--method", "C2", "C2+GSP", "--repeats", "2", *TINY, "--out", str(folder)]) == 0
    return folder


def test_the_table_is_that_of_the_results(fair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", "fair", "--method", "C2", "C2+GSP", "--repeats", "2", *TINY, "--out", str(fair)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # nothing is trained again
    summary = json.loads((fair / "results.json").read_text())
    for method in summary["methods"]:
        for kind in ("single", "ensemble"):
            value = method[kind]["map@r"]
            assert f"{100 * value['mean']:.2f} ± {100 * value['std']:.2f} " in shown.out
            assert "[{:.2f}, {:.2f}]".format(*(100 * end for end in value["ci95"])) in shown.out
    difference = summary["methods"][1]["comparison"]["ensemble"]["map@r"]
    assert f"{100 * difference['difference']:+.2f} " in shown.out
    assert "[{:+.2f}, {:+.2f}]".format(*(100 * end for end in difference["ci95"])) in shown.out
    assert "2 folds × 2 repeats" in shown.out
    assert "standard deviation of 4 collections" in shown.out
    assert "TEST SET" not in shown.out
    assert "elected on the test set" not in (fair / "C2" / "f0r0" / "summary.html").read_text()


def test_each_model_held_out_another_part(fair: Path) -> None:
    first, second = load_results(fair)
    assert first.ensemble_dim == 2 * first.dim == 16
    texts = [(run / "config.yaml").read_text() for run in second.runs]
    assert ["fold: 0\n" in text for text in texts] == [True, True, False, False]
    assert all("loss: zsr/contrastive\n" in text and "pooling: gsp\n" in text for text in texts)


def test_a_changed_setting_is_refused(fair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", "fair", "--method", "C2", "C2+GSP", *TINY, "--lr", "0.5", "--out", str(fair)]) == 2
    assert "0.001, not 0.5: choose another folder" in capsys.readouterr().err


def test_conventional_says_so_in_its_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["protocol", "conventional", "--method", "C2+GSP", "--repeats", "2", *TINY, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "MODELS SELECTED ON THE TEST SET" in shown
    assert "C2+GSP, best of 2" in shown
    assert "Models were selected on the test set" in (tmp_path / "out" / "C2+GSP" / "f0r1" / "summary.html").read_text()
    assert (tmp_path / "out" / "scores.csv").read_text().splitlines()[1].endswith("test,test")


def test_a_command_that_fails_before_any_training_can_be_corrected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["protocol", "conventional", "--method", "C2", "--repeats", "1", "--out", str(tmp_path / "out")]
    few = [word for pair in zip(TINY[::2], TINY[1::2], strict=True) if "pooling" not in pair[0] for word in pair]
    for wrong in (["--dataset", "nonsense"], ["--weights", str(tmp_path / "nowhere.pth")]):
        assert main([*words, *few, *wrong]) == 2
        assert wrong[1] in capsys.readouterr().err
    assert main([*words, *few]) == 0


def test_tuning_without_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["protocol", "tuning", "--method", "C2+GSP", "--repeats", "1", *TINY, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "validation classes" in shown
    assert "interval over classes only" in shown
    assert " ± " not in shown


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fair", *TINY], "needs a dataset, methods"),
        (["fair", "--method", "C2+GSPP", *TINY], "unknown part 'GSPP'"),
        (["fair", "--method", "C2+GSP", *TINY, "--stepz", "3"], "unknown setting 'stepz': did you mean 'steps'"),
        (["fair", "--method", "C2+GSP", *TINY, "--engine", "rai"], "unknown engine 'rai': did you mean 'ray'"),
        (["fair", "--method", "C2+GSP", *TINY, "--gpus", "1"], "--gpus 1.0 has no meaning for --engine local"),
        (["fair", "--method", "C2+GSP", *TINY, "--address", "x:1"], "--address x:1 has no meaning for --engine local"),
        (["fair", "--method", "C2+GSP", *TINY, "--jobs", "2", "--engine", "ray"], "--jobs 2 has no meaning for"),
        (["fair", "--method", "C2+GSP", *TINY, "--resume", "x"], "the same command again continues it"),
    ],
)
def test_mistakes(words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["protocol", *words, "--out", str(tmp_path / "out")]) == 2
    assert reason in capsys.readouterr().err


def words(folder: Path, *more: str) -> list[str]:
    pace = ("--steps", "240", "--validate-every", "5", "--patience", "99")
    return ["protocol", "fair", *TINY, *pace, "--method", "C2+GSP", "--repeats", "1", *more, "--out", str(folder)]


def start(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sumpool", *words(folder, "--jobs", "2")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def begun(folder: Path) -> bool:
    return all((folder / "C2+GSP" / name / "last.safetensors").exists() for name in ("f0r0", "f1r0"))


def children(process: "subprocess.Popen[str]") -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes as on Linux")
def test_ctrl_c_and_a_killed_command_lose_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    first = start(folder)
    wait_for(lambda: begun(folder))
    workers = children(first)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=300)
    assert first.returncode == 130
    assert "stopped with everything saved" in said
    assert len(workers) == 2
    assert not any(map(alive, workers))
    assert not list(folder.rglob("test.safetensors"))

    saved = {path: path.stat().st_mtime_ns for path in folder.rglob("last.safetensors")}
    second = start(folder)
    wait_for(lambda: all(path.stat().st_mtime_ns > before for path, before in saved.items()))
    workers = children(second)
    os.kill(second.pid, signal.SIGKILL)
    second.communicate()
    wait_for(lambda: not any(map(alive, workers)))

    assert main(words(folder)) == main(words(tmp_path / "whole")) == 0
    assert (folder / "results.json").read_text() == (tmp_path / "whole" / "results.json").read_text()
