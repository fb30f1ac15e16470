"""The command line as a user meets it: quick, helpful, and never a traceback for a mistake."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sumpool import __version__
from sumpool.cli import COMMANDS, main
from sumpool.cli.list import KINDS


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and line in shown for name, line in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"sumpool {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"sumpool {__version__}\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["study", "--help"]])
def test_starts_without_loading_torch(arguments: list[str]) -> None:
    code = (
        "import sys; from sumpool.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["studdy"], "unknown command 'studdy': did you mean 'study'"),
        (["study", "all", "--scale", "huge"], "unknown scale 'huge': known: cpu, paper, smoke"),
        (["study", "toy", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["demo", "--jobs", "-1"], "jobs must be at least 1, got -1"),
        (["study", "toi"], "unknown study 'toi': did you mean 'toy'"),
        (["list", "pooling"], "unknown kind of component 'pooling': did you mean 'poolings'"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_list_shows_every_component_with_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    for module, table in KINDS.values():
        for name in getattr(import_module(module), table):
            described = [line for line in lines if line.split()[0] == name and len(line.split(maxsplit=1)[1]) > 10]
            assert described, f"{name} needs a description"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"'{sys.executable}' -c 'from sumpool.cli import main; raise SystemExit(main())' list | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_toy_study_shows_the_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # trainings go to out/ here
    assert main(["study", "toy", "--out", "page"]) == 0
    shown = capsys.readouterr().out
    assert "| linear program, μ = 0.2 | 50 | 20 |" in shown
    assert "| entropy, μ = 0.2, ε = 5 | 50 | 50 |" in shown
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"toy.png", "results.json", "README.md"}
