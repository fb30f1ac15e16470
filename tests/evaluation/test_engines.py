"""Trainings side by side give what they give alone, and every way to fail is reported and continued."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.errors import InputError
from sumpool.evaluation import engines
from sumpool.evaluation.engines import Trial, run_trials, threads
from sumpool.evaluation.tally import Tally
from sumpool.evaluation.trial import load_embedded
from sumpool.training.config import TrainConfig

from .cases import SMALL


def trials(folder: Path, count: int = 3, **settings: Any) -> list[Trial]:
    return [(TrainConfig("glyphs", **{**SMALL, **settings}, seed=seed), folder / f"run{seed}") for seed in range(count)]


def test_side_by_side_is_the_same_as_one_after_the_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    alone, together = trials(tmp_path / "alone"), trials(tmp_path / "together")
    run_trials(alone)
    run_trials(together, jobs=2)
    for (_, one), (_, other) in zip(alone, together, strict=True):
        torch.testing.assert_close(load_embedded(one).vectors, load_embedded(other).vectors, rtol=0, atol=0)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "3 trainings to do, one after the other"
    assert said[4] == "3 trainings to do, 2 at a time"
    assert "2 of 3 trainings done, the last in" in said[-2]
    assert "left" in said[-2]
    run_trials(together, jobs=2)
    assert capfd.readouterr().err == ""  # nothing was left to do


def test_the_validation_part_instead_of_the_test_part(tmp_path: Path) -> None:
    ((config, folder),) = trials(tmp_path, 1, validate_on="val")
    run_trials([(config, folder)], part="validation")
    assert not (folder / "test.safetensors").exists()
    assert len(load_embedded(folder, "validation").vectors) == 3 * 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_training_that_cannot_run_is_named_and_nothing_else_is_lost(tmp_path: Path, jobs: int) -> None:
    good, bad = trials(tmp_path / "good", 1), trials(tmp_path / "bad", 1, pooling_settings={"mass": 0.5})
    with pytest.raises(InputError, match=r"bad/run0: pooling 'gap' has no setting 'mass'"):
        run_trials([*good, *bad], jobs=jobs)
    run_trials(good)
    assert (good[0][1] / "test.safetensors").exists()
    assert not bad[0][1].exists()


def test_a_crash_is_reported_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, sys; sys.stdin.readline(); print('out of luck', file=sys.stderr, flush=True); os.abort()"
    monkeypatch.setattr(engines, "WORKER", [sys.executable, "-c", code])
    with pytest.raises(InputError, match=r"the training in .*run[01] has crashed \(SIGABRT: out of luck\)"):
        run_trials(trials(tmp_path, 2), jobs=2)


def test_an_unexpected_error_is_reported_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "run0").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=r"run0: (NotADirectory|FileExists)Error"):
        run_trials(trials(tmp_path, 1), jobs=2)


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [threads(jobs) for jobs in (1, 2, 3, 16)] == [8, 4, 2, 1]
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        run_trials([], jobs=0)


def test_the_time_left_is_what_the_finished_ones_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    tally = Tally(4, "here")
    now[0] = 60.0
    tally.done(Path("a"))
    assert capsys.readouterr().err.endswith("1 of 4 trainings done, the last in a, about 3 min left\n")
