"""A run that is killed, at any step or while it writes, ends with the same weights as one that is not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from sumpool.cli import main
from sumpool.training.checkpoint import load_state, save_state

SETTINGS = {
    "backbone": "tiny",
    "pooling_settings.prototypes": 4,
    "pooling_settings.memory": 30,
    "dim": 8,
    "augment": "shift",
    "loss": "zsr/xbm/original_contrastive",
    "loss_settings.xbm.batches": 3,
    "loss_settings.xbm.start": 4,
    "classes_per_batch": 2,
    "images_per_class": 3,
    "steps": 24,
    "validate_every": 6,
    "checkpoint_every": 2,
    "lr": 1e-3,
    "ema": 0.9,
}
FLAGS = ["toy", *(word for name, value in SETTINGS.items() for word in (f"--{name}", str(value)))]

# Kills its own process at a training step, or in the middle of writing a checkpoint.
KILLER = """
import os, signal, sys
from sumpool.cli import main
from sumpool import files
from sumpool.training import loop
kind, count = sys.argv[1], int(sys.argv[2])
def dying(function):
    calls = 0
    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return wrapper
if kind == "step":
    loop.Training.train_on = dying(loop.Training.train_on)
if kind == "write":
    files.os.replace = dying(files.os.replace)
sys.exit(main(sys.argv[3:]))
"""


def train(kind: str, count: int, arguments: list[str]) -> int:
    command = [sys.executable, "-c", KILLER, kind, str(count), "train", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300).returncode


def test_killed_runs_end_with_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train("never", 0, [*FLAGS, "--out", str(whole)]) == 0
    rng = random.Random(0)
    deaths = [("step", rng.randrange(2, 9)), ("write", rng.randrange(2, 5)), ("step", rng.randrange(1, 7))]
    arguments = [*FLAGS, "--out", str(broken)]
    for kind, count in deaths:
        assert train(kind, count, arguments) == -signal.SIGKILL, (kind, count)
        arguments = ["--resume", str(broken)]
    assert train("never", 0, arguments) == 0
    states = [load_state(folder / "last.safetensors") for folder in (whole, broken)]
    assert str(states[0]) == str(states[1])
    best = [load_file(folder / "best" / "model.safetensors") for folder in (whole, broken)]
    assert all(best[0][name].equal(best[1][name]) for name in best[0] | best[1])
    logs = [
        [{k: v for k, v in json.loads(line).items() if "seconds" not in k} for line in text.splitlines()]
        for text in ((folder / "metrics.jsonl").read_text() for folder in (whole, broken))
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_request_ends_after_the_step_and_can_be_continued(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = [*FLAGS, "--out", str(folder), "--steps", "100000", "--validate_every", "100000"]
    command = [sys.executable, "-c", "from sumpool.cli import main; raise SystemExit(main())", "train", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (folder / "last.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, number)
    said, complained = process.communicate(timeout=300)
    assert process.returncode == 0, complained
    assert f"continue with: sumpool train --resume {folder}" in said
    assert f"stopped after step {load_state(folder / 'last.safetensors')['step']} " in said


def test_resume_refuses_a_changed_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["train", *FLAGS, "--out", str(folder), "--steps", "1"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--lr", "0.5"]) == 2
    assert "the run was started with lr 0.001, not 0.5" in capsys.readouterr().err
    assert main(["train", *FLAGS, "--out", str(folder)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "nothing")]) == 2
    assert "holds no run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"), [("lr: 0.001", "lr: 0.5"), ("dim: 8", "dim: 6"), ("pooling: gsp", "pooling: gap_attributes")]
)
def test_an_edited_configuration_is_refused(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["train", *FLAGS, "--out", str(folder), "--steps", "1"]) == 0
    text = (folder / "config.yaml").read_text()
    assert f"\n{old}\n" in text
    (folder / "config.yaml").write_text(text.replace(f"\n{old}\n", f"\n{new}\n"))
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"the run was started with {old.replace(':', '')}, " in error
    assert f"now says {new.split()[1]}: put the old value back" in error


def test_other_places_and_more_steps_continue_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["train", *FLAGS, "--out", str(folder), "--steps", "2"]) == 0
    text = (folder / "config.yaml").read_text()
    changed = text.replace("\nsteps: 2\n", "\nsteps: 3\n").replace("\ndevice: auto\n", "\ndevice: cpu\n")
    (folder / "config.yaml").write_text(changed)
    assert main(["train", "--resume", str(folder)]) == 0
    assert load_state(folder / "last.safetensors")["step"] == 3


def test_a_checkpoint_without_its_classes_is_continued_and_other_classes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["train", *FLAGS, "--out", str(folder), "--steps", "1"]) == 0
    state = load_state(folder / "last.safetensors")
    save_state(folder / "last.safetensors", {**state, "classes": ["cat", *state["classes"]]})
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 2
    assert "the run was started on 3 training classes, toy now gives 2" in capsys.readouterr().err
    del state["classes"]
    save_state(folder / "last.safetensors", state)
    assert main(["train", "--resume", str(folder)]) == 0


def test_a_run_that_diverges_says_when_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *FLAGS, "--lr", "1e30", "--clip-norm", "0", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "training failed at step 2: " in error
    assert "if it diverged, start a new run with a lower lr" in error


def test_a_loss_that_is_not_finite_stops_with_the_last_checkpoint_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumpool.losses import OriginalContrastive

    formula = OriginalContrastive.formula
    calls = iter(range(1000))
    monkeypatch.setattr(
        OriginalContrastive, "formula", lambda *a: formula(*a) * (float("nan") if next(calls) > 12 else 1)
    )
    assert main(["train", *FLAGS, "--out", str(tmp_path / "run")]) == 2
    assert "the loss or its gradient is not finite" in capsys.readouterr().err
    assert all(
        value.isfinite().all() for value in load_state(tmp_path / "run" / "last.safetensors")["embedder"].values()
    )


def test_a_validation_set_without_pairs_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumpool.training import loop

    monkeypatch.setattr(loop, "score_dataset", lambda *a, **k: dict.fromkeys(loop.METRICS, float("nan")))
    assert main(["train", *FLAGS, "--out", str(tmp_path / "run")]) == 2
    assert "gives no map@r: no image has another of its class" in capsys.readouterr().err


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sumpool import files
    from sumpool.errors import InputError

    path = tmp_path / "last.safetensors"
    save_state(path, {"step": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device; what was there before is intact"):
        files.write_atomically(path, b"half")
    monkeypatch.undo()
    assert load_state(path) == {"step": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.safetensors"]


def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    from sumpool.errors import InputError

    (tmp_path / "last.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"last\.safetensors is not a checkpoint"):
        load_state(tmp_path / "last.safetensors")
