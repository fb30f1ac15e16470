"""ONNX: onnxruntime gives what PyTorch gives, at batch and image sizes other than the exported ones."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sumpool import Embedder
from sumpool.backbones import create_backbone
from sumpool.errors import InputError
from sumpool.pooling import GSP, POOLINGS, Pooling, create_pooling
from sumpool.types import Pooled

pytest.importorskip("onnxscript", reason="export needs pip install 'sumpool[export]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="running the export needs pip install onnxruntime")


def ready(name: str) -> Pooling:
    """A pooling whose prototypes, if it has any, are in use."""
    memory = {"memory": 0} if "memory" in POOLINGS[name].__init__.__annotations__ else {}  # type: ignore[misc]
    return create_pooling(name, in_features=32, dim=16, **memory)


# What GSP and its combinations share makes an export long, so the combinations have their own, slow, test below.
TOGETHER = [name for name, entry in POOLINGS.items() if entry is GSP or not issubclass(entry, GSP)]  # type: ignore[arg-type]


class Together(Pooling):
    """Poolings side by side on the same features, so that one export checks them all."""

    def __init__(self) -> None:
        super().__init__(32, 16)
        self.members = nn.ModuleList(ready(name) for name in TOGETHER)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Pooled:
        vectors = [nn.functional.normalize(member(features).vector) for member in self.members]
        return Pooled(torch.cat(vectors, dim=1))


def outputs(embedder: Embedder, path: Path, sizes: list[tuple[int, int, int]]) -> list[tuple[Tensor, Tensor]]:
    """Embeddings by onnxruntime and by PyTorch at (batch, height, width)."""
    session = onnxruntime.InferenceSession(path)
    pairs = []
    for batch, height, width in sizes:
        images = torch.randn(batch, 3, height, width)
        (found,) = session.run(["embedding"], {"images": images.numpy()})
        pairs.append((torch.from_numpy(found), embedder.embed(images)))
    return pairs


def test_poolings(tmp_path: Path) -> None:
    torch.manual_seed(0)
    embedder = Embedder(create_backbone("tiny"), Together(), "none")
    embedder.to_onnx(tmp_path / "all.onnx")
    for found, expected in outputs(embedder, tmp_path / "all.onnx", [(1, 32, 32), (3, 40, 72), (2, 33, 57)]):
        for name, one, two in zip(TOGETHER, found.split(16, 1), expected.split(16, 1), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
def test_every_pooling_alone(name: str, tmp_path: Path) -> None:
    embedder = Embedder(create_backbone("tiny"), ready(name))
    embedder.to_onnx(tmp_path / "one.onnx")
    for found, expected in outputs(embedder, tmp_path / "one.onnx", [(1, 32, 32), (3, 40, 72)]):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bn_inception", "resnet50", "efficientnet_lite0", "resnet20", "resnet_v2_20"])
def test_every_backbone(name: str, tmp_path: Path) -> None:
    backbone = create_backbone(name)
    embedder = Embedder(backbone, create_pooling("gem", backbone.out_features, 8))
    embedder.to_onnx(tmp_path / "model.onnx")
    for found, expected in outputs(embedder, tmp_path / "model.onnx", [(1, 64, 64), (2, 65, 97)]):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_file_says_how_to_prepare_images_and_training_goes_on(tmp_path: Path) -> None:
    embedder = Embedder(create_backbone("tiny"), create_pooling("gap", 32, 4)).train()
    embedder.to_onnx(tmp_path / "folder" / "model.onnx")
    assert embedder.training
    metadata = onnxruntime.InferenceSession(tmp_path / "folder" / "model.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["sumpool.preprocessing"])["size"] == 32


def test_without_the_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumpool.embedder.onnx_model.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"sumpool\[export\]"):
        Embedder(create_backbone("tiny"), create_pooling("gap", 32)).to_onnx(tmp_path / "model.onnx")
