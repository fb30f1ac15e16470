"""Weights files: wrong ones change nothing and say what is wrong."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sumpool.backbones import Backbone, create_backbone
from sumpool.errors import InputError


@pytest.fixture
def tiny() -> Backbone:
    return create_backbone("tiny")


def refused(backbone: Backbone, path: Path, message: str) -> None:
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(InputError, match=message):
        backbone.load(path)
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, before[key]), key


def different(backbone: Backbone) -> dict[str, Tensor]:
    return {key: value + 1 for key, value in backbone.state_dict().items()}


def test_a_wrong_shape_is_named_and_nothing_changes(tiny: Backbone, tmp_path: Path) -> None:
    weights = different(tiny)
    weights["stages.conv3.0.weight"] = torch.zeros(5, 5, 3, 3)
    save_file(weights, tmp_path / "wrong.safetensors")
    expected = r"'stages.conv3.0.weight' has shape \(5, 5, 3, 3\), expected \(32, 32, 3, 3\)"
    refused(tiny, tmp_path / "wrong.safetensors", expected)


def test_a_missing_key_is_named_and_nothing_changes(tiny: Backbone, tmp_path: Path) -> None:
    weights = different(tiny)
    del weights["stages.conv2.1.bias"]
    torch.save(weights, tmp_path / "wrong.pt")
    refused(tiny, tmp_path / "wrong.pt", r"lacks 'stages.conv2.1.bias' of shape \(32,\)")


def test_an_unexpected_key_is_named_and_nothing_changes(tiny: Backbone, tmp_path: Path) -> None:
    torch.save({**different(tiny), "extra": torch.zeros(7)}, tmp_path / "wrong.pt")
    refused(tiny, tmp_path / "wrong.pt", r"no 'extra' of shape \(7,\)")


def test_weights_of_another_network(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "other.pt")
    refused(create_backbone("bn_inception"), tmp_path / "other.pt", "lacks 'stages.stem.conv1_7x7_s2.conv.weight'")


def test_old_files_without_batch_counters_and_wrapped_ones_load(tiny: Backbone, tmp_path: Path) -> None:
    weights = {key: value for key, value in different(tiny).items() if not key.endswith("num_batches_tracked")}
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "old.pt")
    tiny.load(tmp_path / "old.pt")
    assert all(torch.equal(tiny.state_dict()[key], value) for key, value in weights.items())


def test_files_that_are_no_weights(tiny: Backbone, tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("not weights")
    (tmp_path / "text.safetensors").write_text("not weights either")
    (tmp_path / "letter.pth").write_text("epoch 1, loss 0.5")
    (tmp_path / "empty.pth").write_text("")
    torch.save([1, 2], tmp_path / "list.pt")
    refused(tiny, tmp_path / "absent.pt", "no weights file at")
    refused(tiny, tmp_path / "text.pt", "not a readable weights file")
    refused(tiny, tmp_path / "letter.pth", "not a readable weights file")
    refused(tiny, tmp_path / "empty.pth", "not a readable weights file")
    refused(tiny, tmp_path / "text.safetensors", "not a readable weights file")
    refused(tiny, tmp_path / "list.pt", "holds list, expected a dictionary of tensors")


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("bomb"),)


def test_nothing_is_executed_while_reading(tiny: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bomb.pt").write_bytes(pickle.dumps({"weight": Bomb()}, protocol=2))
    refused(tiny, tmp_path / "bomb.pt", "not a readable weights file")
    assert not (tmp_path / "bomb").exists()
