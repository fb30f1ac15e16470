"""Both ResNet-20s against a plain functional forward pass, and their published sizes."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.backbones import create_backbone


def plain_forward(name: str, weights: dict[str, Tensor], images: Tensor) -> Tensor:
    def conv(features: Tensor, key: str, stride: int = 1) -> Tensor:
        return F.conv2d(features, weights[f"{key}.weight"], stride=stride, padding=1)

    def norm(features: Tensor, key: str) -> Tensor:
        entries = {entry: weights[f"{key}.{entry}"] for entry in ("running_mean", "running_var", "weight", "bias")}
        return F.batch_norm(features, **entries)

    first = name == "resnet20"
    features = F.relu(norm(conv(images, "stem.conv"), "stem.bn")) if first else conv(images, "stem")
    for layer in (1, 2, 3):
        for block in (0, 1, 2):
            key, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            shortcut = features[:, :, ::stride, ::stride]
            if stride == 2:
                shortcut = torch.cat([shortcut, torch.zeros_like(shortcut)], dim=1)
            if first:
                features = F.relu(norm(conv(features, f"{key}.conv1", stride), f"{key}.bn1"))
                features = F.relu(shortcut + norm(conv(features, f"{key}.conv2"), f"{key}.bn2"))
            else:
                features = conv(F.relu(norm(features, f"{key}.bn1")), f"{key}.conv1", stride)
                features = shortcut + conv(F.relu(norm(features, f"{key}.bn2")), f"{key}.conv2")
    return features if first else F.relu(norm(features, "last.0"))


@pytest.mark.parametrize("name", ["resnet20", "resnet_v2_20"])
def test_equals_the_plain_forward_pass(name: str) -> None:
    backbone = create_backbone(name).double()
    backbone.train()(torch.randn(8, 3, 32, 32).double())  # so that the running statistics are not the initial ones
    backbone.eval()
    images = torch.randn(2, 3, 32, 48).double()
    weights = {key.removeprefix("stages."): value for key, value in backbone.state_dict().items()}
    with torch.no_grad():
        expected = plain_forward(name, weights, images)
        torch.testing.assert_close(backbone(images), expected)
    assert expected.shape == (2, 64, 8, 12)
    assert float((expected > 0).double().mean()) > 0.1


def test_published_size() -> None:
    """He et al. print 0.27 M parameters; a ten-class layer on 64 channels has 650 of the exact 269,722."""
    assert sum(parameter.numel() for parameter in create_backbone("resnet20").parameters()) == 269_722 - 650
