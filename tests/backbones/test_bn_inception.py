"""BN-Inception against the publicly known weights file and a plain functional forward pass on its flat names."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sumpool.backbones import create_backbone

# The public file's convolutions: name, input channels, output channels, kernel. Each has `.weight` and `.bias`, and a
# BatchNorm `<name>_bn` with `.weight`, `.bias`, `.running_mean`, `.running_var`.
CONVOLUTIONS = """
conv1_7x7_s2 3 64 7 | conv2_3x3_reduce 64 64 1 | conv2_3x3 64 192 3
3a_1x1 192 64 1 | 3a_3x3_reduce 192 64 1 | 3a_3x3 64 64 3 | 3a_double_3x3_reduce 192 64 1
3a_double_3x3_1 64 96 3 | 3a_double_3x3_2 96 96 3 | 3a_pool_proj 192 32 1
3b_1x1 256 64 1 | 3b_3x3_reduce 256 64 1 | 3b_3x3 64 96 3 | 3b_double_3x3_reduce 256 64 1
3b_double_3x3_1 64 96 3 | 3b_double_3x3_2 96 96 3 | 3b_pool_proj 256 64 1
3c_3x3_reduce 320 128 1 | 3c_3x3 128 160 3 | 3c_double_3x3_reduce 320 64 1 | 3c_double_3x3_1 64 96 3
3c_double_3x3_2 96 96 3
4a_1x1 576 224 1 | 4a_3x3_reduce 576 64 1 | 4a_3x3 64 96 3 | 4a_double_3x3_reduce 576 96 1
4a_double_3x3_1 96 128 3 | 4a_double_3x3_2 128 128 3 | 4a_pool_proj 576 128 1
4b_1x1 576 192 1 | 4b_3x3_reduce 576 96 1 | 4b_3x3 96 128 3 | 4b_double_3x3_reduce 576 96 1
4b_double_3x3_1 96 128 3 | 4b_double_3x3_2 128 128 3 | 4b_pool_proj 576 128 1
4c_1x1 576 160 1 | 4c_3x3_reduce 576 128 1 | 4c_3x3 128 160 3 | 4c_double_3x3_reduce 576 128 1
4c_double_3x3_1 128 160 3 | 4c_double_3x3_2 160 160 3 | 4c_pool_proj 576 128 1
4d_1x1 608 96 1 | 4d_3x3_reduce 608 128 1 | 4d_3x3 128 192 3 | 4d_double_3x3_reduce 608 160 1
4d_double_3x3_1 160 192 3 | 4d_double_3x3_2 192 192 3 | 4d_pool_proj 608 128 1
4e_3x3_reduce 608 128 1 | 4e_3x3 128 192 3 | 4e_double_3x3_reduce 608 192 1 | 4e_double_3x3_1 192 256 3
4e_double_3x3_2 256 256 3
5a_1x1 1056 352 1 | 5a_3x3_reduce 1056 192 1 | 5a_3x3 192 320 3 | 5a_double_3x3_reduce 1056 160 1
5a_double_3x3_1 160 224 3 | 5a_double_3x3_2 224 224 3 | 5a_pool_proj 1056 128 1
5b_1x1 1024 352 1 | 5b_3x3_reduce 1024 192 1 | 5b_3x3 192 320 3 | 5b_double_3x3_reduce 1024 192 1
5b_double_3x3_1 192 224 3 | 5b_double_3x3_2 224 224 3 | 5b_pool_proj 1024 128 1
"""


def public_file() -> dict[str, Tensor]:
    """A file with the keys and shapes of the public one and random values."""
    generator = torch.Generator().manual_seed(0)
    weights = {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    for row in CONVOLUTIONS.replace("\n", "|").split("|"):
        if not row.strip():
            continue
        short, channels, out, kernel = row.split()
        name = short if short.startswith("conv") else f"inception_{short}"
        shape = (int(out), int(channels), int(kernel), int(kernel))
        fan_in = shape[1] * shape[2] * shape[3]
        weights[f"{name}.weight"] = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5
        weights[f"{name}.bias"] = torch.randn(shape[0], generator=generator) / 10
        for entry in ("weight", "running_var"):
            weights[f"{name}_bn.{entry}"] = torch.rand(shape[0], generator=generator) + 0.5
        for entry in ("bias", "running_mean"):
            weights[f"{name}_bn.{entry}"] = torch.randn(shape[0], generator=generator) / 10
    return weights


def plain_forward(weights: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network as a list of instructions on the flat names."""

    def conv(features: Tensor, *names: str, stride: int = 1) -> Tensor:
        """A chain of convolutions; `stride` belongs to the last."""
        for name in names:
            kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            step = stride if name == names[-1] else 1
            features = F.conv2d(features, kernel, bias, stride=step, padding=kernel.shape[2] // 2)
            bn = {entry: weights[f"{name}_bn.{entry}"] for entry in ("running_mean", "running_var", "weight", "bias")}
            features = F.relu(F.batch_norm(features, **bn))
        return features

    def inception(features: Tensor, name: str) -> Tensor:
        block = f"inception_{name}_"
        stride = 2 if name in ("3c", "4e") else 1
        three = conv(features, block + "3x3_reduce", block + "3x3", stride=stride)
        chain = (block + "double_3x3_reduce", block + "double_3x3_1", block + "double_3x3_2")
        double = conv(features, *chain, stride=stride)
        if stride == 2:
            return torch.cat([three, double, F.max_pool2d(features, 3, 2, ceil_mode=True)], 1)
        pool = F.max_pool2d if name == "5b" else F.avg_pool2d
        pooled = conv(pool(features, 3, 1, padding=1), block + "pool_proj")
        return torch.cat([conv(features, block + "1x1"), three, double, pooled], 1)

    features = F.max_pool2d(conv(images, "conv1_7x7_s2", stride=2), 3, 2, ceil_mode=True)
    features = F.max_pool2d(conv(features, "conv2_3x3_reduce", "conv2_3x3"), 3, 2, ceil_mode=True)
    for name in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        features = inception(features, name)
    return features


@pytest.mark.parametrize("side", [96, 99])
def test_the_public_file_gives_the_plain_forward_pass(tmp_path: Path, side: int) -> None:
    weights = public_file()
    torch.save(weights, tmp_path / "bn_inception.pth")
    backbone = create_backbone("bn_inception", weights=tmp_path / "bn_inception.pth").eval()
    images = torch.randn(1, 3, side, side)
    with torch.no_grad():
        expected = plain_forward(weights, images)
        torch.testing.assert_close(backbone(images), expected, rtol=1e-4, atol=1e-4)
    assert float((expected > 0).float().mean()) > 0.1  # a network of zeros would prove nothing


def test_copies_with_row_vectors_load(tmp_path: Path) -> None:
    weights = {key: value[None] if "_bn." in key else value for key, value in public_file().items()}
    torch.save(weights, tmp_path / "rows.pth")
    backbone = create_backbone("bn_inception", weights=tmp_path / "rows.pth")
    key = "stages.inception_4c.double_3x3_1.bn.running_mean"
    assert torch.equal(backbone.state_dict()[key], weights["inception_4c_double_3x3_1_bn.running_mean"][0])


def test_sizes_of_the_papers() -> None:
    backbone = create_backbone("bn_inception").eval()
    with torch.no_grad():
        assert backbone(torch.zeros(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
        assert backbone(torch.zeros(1, 3, 227, 227)).shape == (1, 1024, 7, 7)


def test_its_images_are_bgr_on_the_255_scale() -> None:
    preprocessing = create_backbone("bn_inception").preprocessing
    assert (preprocessing.channels, preprocessing.scale, preprocessing.std) == ("bgr", 255.0, (1.0, 1.0, 1.0))
    assert [round(255 * value) for value in reversed(preprocessing.mean)] == [104, 117, 128]
