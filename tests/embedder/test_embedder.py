"""What an embedder promises, for every pooling."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from sumpool import Embedder
from sumpool.backbones import create_backbone
from sumpool.embedder.normalisation import lipschitz, unit
from sumpool.errors import InputError
from sumpool.pooling import POOLINGS, create_pooling
from sumpool.types import Pooled


def small(pooling: str = "gsp", normalize: str = "unit") -> Embedder:
    torch.manual_seed(0)
    pool = create_pooling(pooling, in_features=32, dim=16)
    return Embedder(create_backbone("tiny"), pool, normalize)


def write_pictures(folder: Path, count: int) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(path)
    return paths


def test_the_flow_written_out() -> None:
    embedder = small("gem").eval()
    images = torch.randn(3, 3, 32, 32)
    pooled = embedder(images)
    assert isinstance(pooled, Pooled)
    expected = F.normalize(embedder.pooling(embedder.backbone(images)).vector)
    torch.testing.assert_close(pooled.vector, expected)


@pytest.mark.parametrize("normalize", ["unit", "lipschitz", "none"])
def test_normalisations(normalize: str) -> None:
    embedder = small("gap", normalize).eval()
    images = torch.randn(4, 3, 32, 32) * torch.tensor([0.1, 1, 10, 100]).view(4, 1, 1, 1)
    with torch.no_grad():
        raw, vectors = embedder.pooling(embedder.backbone(images)).vector, embedder(images).vector
    for vector, before in zip(vectors, raw, strict=True):
        length = float(before.norm())
        divisor = {"unit": length, "lipschitz": max(1.0, length), "none": 1.0}[normalize]
        torch.testing.assert_close(vector, before / divisor)


def test_lengths_that_half_precision_cannot_hold() -> None:
    large = torch.full((1, 64), 6e4, dtype=torch.float16)
    small = torch.full((1, 64), 6e-8, dtype=torch.float16)
    for normalise in (unit, lipschitz):
        torch.testing.assert_close(normalise(large), torch.full((1, 64), 0.125, dtype=torch.float16))
    torch.testing.assert_close(unit(small), torch.full((1, 64), 0.125, dtype=torch.float16))
    assert torch.equal(unit(torch.zeros(1, 4)), torch.zeros(1, 4))


def test_embed_leaves_the_mode_and_makes_no_graph() -> None:
    embedder = small().train()
    images = torch.randn(2, 3, 32, 32)
    before = {key: value.clone() for key, value in embedder.state_dict().items()}
    vectors = embedder.embed(images)
    assert embedder.training
    assert not vectors.requires_grad
    assert all(torch.equal(value, before[key]) for key, value in embedder.state_dict().items())
    torch.testing.assert_close(vectors, embedder.eval()(images).vector.detach())


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close(name: str, dtype: torch.dtype) -> None:
    embedder = small(name)
    images = torch.randn(4, 3, 64, 64)
    full = embedder.embed(images)
    half = embedder.to(dtype).embed(images)
    assert half.dtype == torch.float32
    # 8 and 11 bits of mantissa through four layers: a few units in the last place of unit vectors
    assert float((full * half).sum(1).min()) > 1 - {torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype]


def test_a_mask_reaches_the_pooling() -> None:
    embedder = small("gap").eval()
    images = torch.randn(1, 3, 32, 32)
    mask = torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 1, 2] = True
    only = F.normalize(embedder.backbone(images)[:, :, 1, 2] @ embedder.pooling.projection.T)
    torch.testing.assert_close(embedder(images, mask).vector, only)


def test_embed_files_equals_one_by_one(tmp_path: Path) -> None:
    embedder = small()
    paths = write_pictures(tmp_path, 7)
    together = embedder.embed_files(paths, batch_size=3, progress=False)
    assert together.shape == (7, 16)
    for path, vector in zip(paths, together, strict=True):
        torch.testing.assert_close(embedder.embed_files([str(path)])[0], vector)
    assert embedder.embed_files([]).shape == (0, 16)


def test_embed_files_prepares_images_as_the_backbone_wants(tmp_path: Path) -> None:
    """BGR, 255 scale, mean subtracted: a plain colour has the value one computes by hand."""
    Image.new("RGB", (300, 280), (10, 20, 30)).save(tmp_path / "plain.png")
    seen = []
    backbone = create_backbone("bn_inception")
    backbone.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    Embedder(backbone, create_pooling("gap", in_features=1024, dim=4)).embed_files([tmp_path / "plain.png"])
    assert seen[0].shape == (1, 3, 227, 227)
    torch.testing.assert_close(seen[0][0, :, 100, 100], torch.tensor([30.0 - 104, 20.0 - 117, 10.0 - 128]))


def test_a_broken_or_missing_file_names_itself(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path, 2)
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    for bad in (tmp_path / "broken.jpg", tmp_path / "absent.jpg"):
        with pytest.raises(InputError, match=bad.name):
            small().embed_files([*paths, bad], progress=False)


def test_mistakes_are_refused_when_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="built for 8 channels, the backbone gives 32"):
        Embedder(create_backbone("tiny"), create_pooling("gap", in_features=8))
    with pytest.raises(InputError, match="did you mean 'unit'"):
        small(normalize="unot")
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        small().embed_files(write_pictures(tmp_path, 1), batch_size=0)
