"""Every backbone of our own keeps the same promises."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sumpool.backbones import BACKBONES, Backbone, create_backbone
from sumpool.errors import InputError

OWN = [name for name in BACKBONES if ":" not in name and name != "tokens"]  # which reads ids, not images
NORMS = (torch.nn.BatchNorm2d,)


def pictures(backbone: Backbone, count: int = 2) -> Tensor:
    side = 32 if backbone.preprocessing.size == 32 else 96
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", OWN)
def test_local_features_of_independent_images(name: str) -> None:
    backbone = create_backbone(name).eval().double()
    images = pictures(backbone).double()
    with torch.no_grad():
        features, alone = backbone(images), backbone(images[1:])
    assert features.shape[:2] == (2, backbone.out_features)
    assert features.dim() == 4
    torch.testing.assert_close(features[1:], alone)
    assert not torch.allclose(features[0], features[1])


@pytest.mark.parametrize("name", OWN)
def test_every_parameter_learns(name: str) -> None:
    backbone = create_backbone(name)
    backbone(pictures(backbone)).square().mean().backward()
    assert [key for key, value in backbone.named_parameters() if value.grad is None] == []


@pytest.mark.parametrize("name", OWN)
def test_odd_and_oblong_images(name: str) -> None:
    backbone = create_backbone(name).eval()
    with torch.no_grad():
        for side in (64, 65, 120):
            features = backbone(torch.randn(1, 3, side, 2 * side))
            assert features.shape[2] < features.shape[3]


@pytest.mark.parametrize("name", OWN)
def test_state_round_trip(name: str, tmp_path: Path) -> None:
    first = create_backbone(name)
    save_file(first.state_dict(), tmp_path / "own.safetensors")
    second = create_backbone(name, weights=tmp_path / "own.safetensors")
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key


@pytest.mark.parametrize("name", OWN)
def test_checkpointing_changes_nothing_but_memory(name: str) -> None:
    plain = create_backbone(name)
    frugal = create_backbone(name, checkpointing=True)
    frugal.load_state_dict(plain.state_dict())
    for backbone in (plain.double(), frugal.double()):
        backbone(pictures(backbone).double()).square().mean().backward()
    for (key, one), two in zip(plain.named_parameters(), frugal.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, msg=key)
    for (key, one_buffer), two_buffer in zip(plain.named_buffers(), frugal.buffers(), strict=True):
        assert torch.equal(one_buffer, two_buffer), key


def test_checkpointing_keeps_fewer_activations() -> None:
    def saved(checkpointing: bool) -> int:
        kept = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        backbone = create_backbone("resnet20", checkpointing=checkpointing)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            backbone(pictures(backbone))
        return kept

    assert saved(checkpointing=True) < saved(checkpointing=False) / 2


@pytest.mark.parametrize("name", OWN)
def test_frozen_batchnorm_stays_frozen_in_training(name: str) -> None:
    backbone = create_backbone(name, freeze_batchnorm=True).train()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in backbone.parameters() if p.requires_grad], lr=0.1)
    backbone(pictures(backbone)).square().mean().backward()
    optimizer.step()
    norms = [key for key, module in backbone.named_modules() if isinstance(module, NORMS)]
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, before[key]) == (key.rpartition(".")[0] in norms), key


def test_partial_freezing_counts_blocks_from_the_image() -> None:
    backbone = create_backbone("resnet50", freeze=2).train()
    frozen = {key.split(".")[1] for key, value in backbone.named_parameters() if not value.requires_grad}
    assert frozen == {"stem", "layer1"}
    assert not backbone.stages[1].training
    assert backbone.stages[2].training
    assert not any(p.requires_grad for p in create_backbone("tiny", freeze="all").parameters())


def test_too_many_frozen_blocks() -> None:
    with pytest.raises(InputError, match="between 0 and the 3 blocks"):
        create_backbone("tiny", freeze=4)


def test_unknown_names_and_settings() -> None:
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        create_backbone("resnet5")
    with pytest.raises(InputError, match="no setting 'depth'"):
        create_backbone("tiny", depth=3)
    with pytest.raises(InputError, match="unknown backbone 'foo:<model>'"):
        create_backbone("foo:bar")


def test_no_pretrained_weights_where_no_package_has_them() -> None:
    with pytest.raises(InputError, match="pass the path of a weights file"):
        create_backbone("bn_inception", weights="pretrained")


def test_the_configuration_builds_the_same_network() -> None:
    first = create_backbone("tiny", channels=16, freeze=1, freeze_batchnorm=True)
    second = create_backbone(**first.config)
    assert second.config == first.config
    assert [tuple(p.shape) for p in second.parameters()] == [tuple(p.shape) for p in first.parameters()]
