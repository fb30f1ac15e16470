"""Settings by file and flag, and runs that can be repeated from what they wrote."""

from pathlib import Path

import pytest
import yaml

from sumpool.cli import main
from sumpool.cli.train import parse
from sumpool.errors import InputError
from sumpool.training.config import TrainConfig, to_yaml

TINY = [
    *("toy", "--backbone", "tiny", "--dim", "4", "--loss", "zsr/contrastive", "--lr", "0.01", "--device", "cpu"),
    *("--classes-per-batch", "2", "--images-per-class", "2", "--steps", "6", "--validate-every", "3"),
    *("--augment", "shift", "--pooling-settings.prototypes", "4", "--pooling-settings.memory", "8"),
]


def config(*words: str) -> TrainConfig:
    return TrainConfig.from_dict(parse([*words]).settings)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["train", *words, "--print-config"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stps", "3"], "unknown setting 'stps': did you mean 'steps'"),
        (["--pooling", "gps"], "unknown pooling 'gps': did you mean 'gsp'"),
        (["--pooling-settings.mas", "0.5"], "has no setting 'mas': did you mean 'mass'"),
        (["--loss", "contrastiv"], "did you mean 'contrastive'"),
        (["--loss-settings.triplet.margin", "0.1"], "settings for 'triplet', which is not in the chain"),
        (["--poolings.mass", "1"], "--pooling_settings.mass"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--steps", "many"], "steps"),
        (["--ema", "1"], "ema must be in [0, 1), got 1"),
        (["--optimizer", "sgd"], "optimizer"),
        (["--lr", "-1"], "lr"),
        (["--dataset", "digits", "--validate-on", "val"], "no val split"),
        (["--score", "map@q"], "unknown metric 'map@q'"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--backbone", "tny"], "did you mean 'tiny'"),
        (["--preset", "birds"], "unknown preset 'birds'"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--betas", "[2, 3]"], "betas must be two numbers in [0, 1), got (2.0, 3.0)"),
        (["--lr", ".inf"], "lr must be finite"),
        (["--pooling-settings.mass", "abc"], "mass of pooling 'gsp' must be a number, got 'abc'"),
        (["--pooling-settings.prototypes", "2.5"], "prototypes of pooling 'gsp' must be a whole number, got 2.5"),
        (["--pooling-settings", "{dim: 3}"], "pooling_settings cannot hold 'dim': the setting 'dim' decides it"),
        (["--data-settings", "{per_class: abc}"], "per_class of dataset 'toy' must be a whole number, got 'abc'"),
        (["--data-settings", "{root: x}"], "data_settings cannot hold 'root': the setting 'data_root' decides it"),
        (["--data-settings", "{name: 1}"], "data_settings cannot hold 'name': the setting 'dataset' decides it"),
        (["--backbone-settings", "{weights: x}"], "backbone_settings cannot hold 'weights'"),
        (["--loss-settings.contrastive", "5"], "the settings of contrastive must be a dictionary"),
        (["--loss", "ccp/contrastive", "--ccp-settings.pull", "abc"], "pull of ccp must be a number, got 'abc'"),
        (["--loss", "ccp/contrastive", "--ccp-settings.pul", "1"], "ccp has no setting 'pul'"),
        (["--dataset", "tokens"], "backbone tokens and sets of tokens belong together, got tiny for tokens"),
        (["--backbone", "tokens"], "backbone tokens and sets of tokens belong together, got tokens for toy"),
    ],
)
def test_bad_values_get_one_sentence_and_leave_nothing(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *TINY, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_unknown_keys_of_a_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("lr: 0.1\npolling: gap\n")
    assert main(["train", "toy", "--config", str(file)]) == 2
    assert "unknown setting 'polling': did you mean 'pooling'" in capsys.readouterr().err
    with pytest.raises(InputError, match="unknown setting 'polling': did you mean 'pooling'"):
        TrainConfig.from_dict({"dataset": "toy", "polling": "gap"})


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("dataset: digits\nlr: 1e-3\nsteps: 7\npooling_settings: {mass: 0.5, prototypes: 8}\n")
    found = config("--config", str(file), "--steps", "9", "--pooling-settings.mass", "4e-1")
    assert (found.dataset, found.lr, found.steps, found.weight_decay) == ("digits", 1e-3, 9, 1e-4)
    assert found.pooling_settings == {"mass": 0.4, "prototypes": 8}
    assert config("toy", "--config", str(file)).dataset == "digits"  # what comes later wins


def test_what_is_written_wins_over_a_protocol(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("protocol: fair\nlr: 1e-3\npooling_settings: {mass: 0.5}\n")
    found = config("cars", "--config", str(file), "--patience", "3", "--pooling-settings.sharpness", "7")
    assert (found.lr, found.patience, found.classes_per_batch, found.validate_on) == (1e-3, 3, 8, "fold")
    assert found.pooling_settings == {"mass": 0.5, "prototypes": 64, "sharpness": 7}
    assert config("birds.npz", "--protocol", "fair", "--preset", "inshop").validate_every == 1000


def test_a_printed_configuration_is_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "printed.yaml"
    words = ["sop", "--protocol", "conventional", "--loss", "zsr/proxy_nca", "--data-settings.x", "[1, a]"]
    file.write_text(printed(capsys, *words))
    assert printed(capsys, "--config", str(file)) == file.read_text()
    assert config("--config", str(file)) == config(*words)
    assert set(yaml.safe_load(file.read_text())) == set(TrainConfig.__dataclass_fields__)


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    original = config(*TINY, "--loss-settings.zsr.ridge", "1e-2", "--freeze", "all", "--weights", "ä b.pt")
    file.write_text(to_yaml(original))
    assert config("--config", str(file)) == original


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert main(["train", *TINY, "--out", str(folder)]) == 0
    return folder


def test_a_run_is_repeated_exactly_from_its_configuration(first: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    assert main(["train", "--config", str(first / "config.yaml"), "--out", str(again)]) == 0
    assert main(["train", "--config", str(first / "config.yaml"), "--seed", "1", "--out", str(other)]) == 0
    for name in ("best/model.safetensors", "last.safetensors", "config.yaml"):
        assert (again / name).read_bytes() == (first / name).read_bytes()
    weights = [(folder / "best" / "model.safetensors").read_bytes() for folder in (first, other)]
    assert weights[0] != weights[1]


def test_a_changed_configuration_is_refused_on_resume(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (first / "last.safetensors").read_bytes()
    for words, message in (
        (["--lr", "0.5"], "the run was started with lr 0.01, not 0.5"),
        (["--pooling-settings.prototypes", "8"], "the run was started with pooling_settings"),
        (["--protocol", "fair", "--preset", "cub"], "leave --protocol away"),
        (["--out", "elsewhere"], "leave --out away"),
    ):
        assert main(["train", "--resume", str(first), *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["train", "--resume", str(first), "--lr", "0.01"]) == 0  # said again, not changed
    assert (first / "last.safetensors").read_bytes() == before


def test_a_folder_with_a_run_is_not_overwritten(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", str(first)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(["train", "--resume", str(first.parent)]) == 2
    assert "holds no run" in capsys.readouterr().err
