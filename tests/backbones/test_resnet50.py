"""ResNet-50 against transformers' implementation, through a file in torchvision's layout."""

import re
from pathlib import Path

import pytest
import torch

from sumpool.backbones import create_backbone

transformers = pytest.importorskip("transformers", reason="the independent ResNet-50 is transformers'")


def torchvision_name(key: str) -> str:
    """The name in torchvision's layout of an entry of transformers' ResNetModel."""
    part = {"convolution": "conv", "normalization": "bn"}
    if stem := re.fullmatch(r"embedder\.embedder\.(\w+)\.(\w+)", key):
        return f"{part[stem[1]]}1.{stem[2]}"
    if layer := re.fullmatch(r"encoder\.stages\.(\d)\.layers\.(\d)\.layer\.(\d)\.(\w+)\.(\w+)", key):
        return f"layer{int(layer[1]) + 1}.{layer[2]}.{part[layer[4]]}{int(layer[3]) + 1}.{layer[5]}"
    short = re.fullmatch(r"encoder\.stages\.(\d)\.layers\.(\d)\.shortcut\.(\w+)\.(\w+)", key)
    assert short, key
    return f"layer{int(short[1]) + 1}.{short[2]}.downsample.{int(short[3] == 'normalization')}.{short[4]}"


def test_equals_transformers(tmp_path: Path) -> None:
    other = transformers.ResNetModel(transformers.ResNetConfig()).eval()
    for name, buffer in other.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    other.double()
    weights = {torchvision_name(key): value for key, value in other.state_dict().items()}
    weights |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    torch.save(weights, tmp_path / "resnet50.pth")
    backbone = create_backbone("resnet50", weights=tmp_path / "resnet50.pth").eval().double()
    images = torch.randn(1, 3, 80, 112, dtype=torch.float64)
    with torch.no_grad():
        expected = other(images).last_hidden_state
    assert float((expected > 0).double().mean()) > 0.1  # a network of zeros would prove nothing
    with torch.no_grad():
        # The weights went through a file of float32.
        torch.testing.assert_close(backbone(images), expected, rtol=1e-4, atol=1e-4)
