"""Save and load: every pooling and backbone comes back the same, and nothing is pickled."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sumpool import Embedder
from sumpool.backbones import BACKBONES, create_backbone
from sumpool.backbones.tiny import Tiny
from sumpool.errors import InputError
from sumpool.pooling import GSP, POOLINGS, Pooling, create_pooling

OWN = [name for name in BACKBONES if ":" not in name]


def small(pooling: str = "gsp", seed: int = 0) -> Embedder:
    torch.manual_seed(seed)
    return Embedder(create_backbone("tiny"), create_pooling(pooling, in_features=32, dim=16))


@pytest.mark.parametrize("name", POOLINGS)
def test_every_pooling_comes_back(name: str, tmp_path: Path) -> None:
    embedder = small(name)
    embedder.save(tmp_path)
    loaded = Embedder.load(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded.embed(images), embedder.embed(images))
    assert loaded.config == embedder.config
    assert loaded.fingerprint() == embedder.fingerprint()
    assert not loaded.training


@pytest.mark.parametrize("name", OWN)
def test_every_backbone_comes_back(name: str, tmp_path: Path) -> None:
    backbone = create_backbone(name, freeze=1, freeze_batchnorm=True)
    embedder = Embedder(backbone, create_pooling("gem", backbone.out_features, 8), "lipschitz")
    embedder.save(tmp_path)
    loaded = Embedder.load(tmp_path)
    assert loaded.backbone.preprocessing == backbone.preprocessing
    assert loaded.fingerprint() == embedder.fingerprint()
    frozen = [key for key, value in embedder.named_parameters() if not value.requires_grad]
    assert [key for key, value in loaded.named_parameters() if not value.requires_grad] == frozen


def test_settings_given_by_position_and_by_class_come_back(tmp_path: Path) -> None:
    pooling = GSP(32, 8, 5, mass=0.4, sharpness=2.0, role="background", memory=7, learn_mass=True)
    Embedder(create_backbone("tiny"), pooling, "none").save(tmp_path)
    loaded = Embedder.load(str(tmp_path))
    assert isinstance(loaded.pooling, GSP)
    assert loaded.pooling.settings == pooling.settings
    assert loaded.normalize == "none"


def test_prototypes_picked_in_training_come_back(tmp_path: Path) -> None:
    embedder = Embedder(create_backbone("tiny"), GSP(32, 8, prototypes=2, memory=4)).train()
    embedder(torch.randn(4, 3, 32, 32))
    embedder.save(tmp_path)
    loaded = Embedder.load(tmp_path)
    assert isinstance(loaded.pooling, GSP)
    assert loaded.pooling.ready
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded.embed(images), embedder.embed(images))


def test_transformers_models_come_back_without_their_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="hf: backbones need pip install 'sumpool[hf]'")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    source, folder = tmp_path / "source", tmp_path / "model"
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(source)
    embedder = Embedder(create_backbone(f"hf:{source}", weights="pretrained"), create_pooling("gsp", 16, 8))
    embedder.save(folder)
    for file in source.iterdir():
        file.unlink()
    loaded = Embedder.load(folder)
    images = torch.randn(2, 3, 32, 48)
    assert torch.equal(loaded.embed(images), embedder.embed(images))
    assert loaded.fingerprint() == embedder.fingerprint()


def test_fingerprint_sees_every_change(tmp_path: Path) -> None:
    prints = {small().fingerprint(), small(seed=1).fingerprint(), small("gap").fingerprint()}
    other = small()
    other.normalize = "none"
    prints.add(other.fingerprint())
    nudged = small()
    with torch.no_grad():
        nudged.backbone.stages[0][0].bias[0].nextafter_(torch.tensor(9.0))
    prints.add(nudged.fingerprint())
    assert len(prints) == 5
    assert small().fingerprint() == small().fingerprint()


def test_the_folder_is_plain_and_complete(tmp_path: Path) -> None:
    small().save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["pooling"]["name"] == "gsp"
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sumpool\n")
    assert "pipeline_tag: image-feature-extraction" in card
    assert "16-dimensional" in card


def test_the_card_is_one_the_hub_reads(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the card's reader needs pip install 'sumpool[hub]'")
    small().save(tmp_path)
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "sumpool"
    assert "metric-learning" in card.data.tags


def test_an_edited_card_is_kept(tmp_path: Path) -> None:
    small().save(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    small(seed=1).save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert Embedder.load(tmp_path).fingerprint() == small(seed=1).fingerprint()


def test_a_full_disk_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sumpool import files

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    small().save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"config\.json: No space left on device; what was there before is intact"):
        small("gap").save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_from_the_hubs_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache layout of huggingface_hub, which also works without a network."""
    hub = pytest.importorskip("huggingface_hub", reason="hub ids need pip install 'sumpool[hub]'")
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--birds"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    small().save(repository / "snapshots" / commit)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    assert Embedder.load("someone/birds").fingerprint() == small().fingerprint()
    with pytest.raises(InputError, match="no folder someone/bees, and the hub says"):
        Embedder.load("someone/bees")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a folder or a hub repository"):
        Embedder.load(tmp_path / "absent")
    with pytest.raises(InputError, match=r"it has no config\.json"):
        Embedder.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        Embedder.load(tmp_path)
    (tmp_path / "config.json").write_text('{"backbone": {}}')
    with pytest.raises(InputError, match="it lacks 'preprocessing'"):
        Embedder.load(tmp_path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("pooling", "gsp"),
        ("pooling", {"in_features": 32}),
        ("pooling", {"name": "gap", "in_features": 32, "dim": "8"}),
        ("preprocessing", {"mean": [0.5]}),
        ("preprocessing", {"mean": [0.5], "std": [0.5], "colour": "red"}),
        ("backbone", {"name": "tiny", "freeze": "some"}),
        ("normalize", 3),
    ],
)
def test_a_configuration_edited_by_hand_is_refused(part: str, value: object, tmp_path: Path) -> None:
    small().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, part: value}))
    with pytest.raises(InputError):
        Embedder.load(tmp_path)


def test_wrong_weights_name_the_key(tmp_path: Path) -> None:
    small().save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["pooling.projection"] = torch.zeros(3, 3)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"'pooling.projection' has shape \(3, 3\), expected \(16, 32\)"):
        Embedder.load(tmp_path)


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path: Path) -> None:
    class Own(Pooling):
        pass

    with pytest.raises(InputError, match="Own is not in POOLINGS"):
        Embedder(create_backbone("tiny"), Own(32)).save(tmp_path / "a")
    with pytest.raises(InputError, match="build it with create_backbone"):
        Embedder(Tiny(), create_pooling("gap", 32)).save(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
