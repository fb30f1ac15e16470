"""What all studies share: the time of every part counts, the overview reads what they left."""

from pathlib import Path

import pytest

from sumpool.cli import main
from sumpool.errors import InputError
from sumpool.studies.base import Call, Outcome, overview, run_study


def found(call: Call) -> Outcome:
    """A study without work."""
    return Outcome({"GSP": {"map@r": {"mean": 0.5, "ci95": [0.4, 0.6]}}}, "| a |", "reproduced", "It holds.")


def test_a_study_that_was_interrupted_took_both_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 100.0, 200.0, 230.0])
    monkeypatch.setattr("sumpool.studies.base.time.perf_counter", lambda: next(times))

    def stopped(call: Call) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(stopped, Call("smoke", tmp_path))
    run_study(found, Call("smoke", tmp_path))
    assert "It took 2 min" in (tmp_path / "README.md").read_text()


def test_an_unknown_scale_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown scale 'big': known: "):
        Call("big", tmp_path)


def test_the_overview_lists_every_study_with_its_verdict(tmp_path: Path) -> None:
    run_study(found, Call("smoke", tmp_path / "some"))
    assert "| [some](some/README.md) | reproduced | It holds. | smoke | 0 s |" in overview(tmp_path)


def test_all_studies_run_even_if_one_lacks_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(call: Call) -> Outcome:
        raise InputError("no data here")

    monkeypatch.setattr("sumpool.studies.STUDIES", {"lacking": lacking, "found": found})
    assert main(["study", "all", "--scale", "smoke", "--out", str(tmp_path)]) == 2
    assert "lacking: no data here" in capsys.readouterr().err
    assert "[found](found/README.md)" in (tmp_path / "README.md").read_text()
