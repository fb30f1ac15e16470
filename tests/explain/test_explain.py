"""Explanations add up to what they explain, for every pooling."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool import GSP, Embedder
from sumpool.backbones import create_backbone
from sumpool.errors import InputError
from sumpool.explain import draw_explanation, draw_pair, explain, explain_pair
from sumpool.explain.explanation import _square
from sumpool.pooling import POOLINGS, create_pooling

# Where the vector is a weighted sum of projected features, or scales with its features (Euler's theorem).
ADDS_UP = [
    "gap", "gmp", "gap+gmp", "gem", "attention", "delf", "weldon", "gsp", "gmp+gsp", "gap_attributes",
]  # fmt: skip


def picture(seed: int, side: int = 40) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def prepared(seed: int, embedder: Embedder) -> torch.Tensor:
    """The same picture as the tiny backbone wants it, step by step."""
    preprocessing = embedder.backbone.preprocessing
    shown = np.asarray(picture(seed).resize((32, 32), Image.Resampling.BILINEAR)) / 255
    return torch.from_numpy((shown - preprocessing.mean) / preprocessing.std).permute(2, 0, 1)[None].float()


def small(pooling: str = "gsp", normalize: str = "unit", **settings: object) -> Embedder:
    torch.manual_seed(0)
    pool = create_pooling(pooling, in_features=32, dim=16, **settings)
    return Embedder(create_backbone("tiny"), pool, normalize).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POOLINGS)
def test_every_pooling_is_explained(name: str, dtype: torch.dtype) -> None:
    embedder = small(name).to(dtype)
    found = explain(embedder, picture(0))
    pair = explain_pair(embedder, picture(0), picture(1))
    assert found.shares.shape == pair.query_shares.shape == (4, 4)
    if found.weights is not None:
        assert float(found.weights.sum()) == pytest.approx(1, abs=1e-5)
    if name in ADDS_UP:
        assert float(found.shares.sum()) == pytest.approx(1, abs=1e-4)
        assert float(pair.query_shares.sum()) == pytest.approx(pair.similarity, abs=1e-4)
        assert float(pair.result_shares.sum()) == pytest.approx(pair.similarity, abs=1e-4)


@pytest.mark.parametrize("normalize", ["unit", "lipschitz", "none"])
def test_the_similarity_is_that_of_the_embeddings(normalize: str, tmp_path: Path) -> None:
    embedder = small(normalize=normalize, memory=0)
    for number in (0, 1):
        picture(number).save(tmp_path / f"{number}.png")
    one, two = embedder.embed_files([tmp_path / "0.png", tmp_path / "1.png"])
    pair = explain_pair(embedder, tmp_path / "0.png", str(tmp_path / "1.png"))
    assert pair.similarity == pytest.approx(float(one @ two), abs=1e-6)
    for shares in (pair.query_shares, pair.result_shares, pair.places, pair.prototypes):
        assert shares is not None
        assert float(shares.sum()) == pytest.approx(pair.similarity, abs=1e-5)
    assert pair.places is not None
    torch.testing.assert_close(pair.places.sum(1), pair.query_shares.flatten())
    torch.testing.assert_close(pair.places.sum(0), pair.result_shares.flatten())


def test_shares_written_as_loops() -> None:
    """p_j p′_k ⟨W f_j, W f′_k⟩ / (‖g‖ ‖g′‖), by hand."""
    embedder = small("gsp", memory=0, prototypes=3, sharpness=20.0)
    pair = explain_pair(embedder, picture(0), picture(1))
    parts = []
    for number in (0, 1):
        image = prepared(number, embedder)
        with torch.no_grad():
            features = embedder.backbone(image)[0].flatten(1).T @ embedder.pooling.projection.T
            weights = embedder(image).weights[0]
        vector = sum(weights[j] * features[j] for j in range(16))
        parts.append([weights[j] * features[j] / vector.norm() for j in range(16)])
    assert pair.places is not None
    for j, k in itertools.product(range(16), range(16)):
        assert float(pair.places[j, k]) == pytest.approx(float(parts[0][j] @ parts[1][k]), abs=1e-5)


def test_prototype_maps_add_up_to_attributes_and_weights() -> None:
    embedder = small("gsp", memory=0, prototypes=5)
    found = explain(embedder, picture(0))
    assert found.prototypes is not None
    assert found.attributes is not None
    assert found.weights is not None
    assert found.prototypes.shape == (5, 4, 4)
    torch.testing.assert_close(found.prototypes.sum(0), found.weights)
    torch.testing.assert_close(found.prototypes.sum((1, 2)), found.attributes)
    with torch.no_grad():
        torch.testing.assert_close(found.attributes, embedder(prepared(0, embedder)).attributes[0])


def test_one_bright_place_is_found() -> None:
    """Only the lower right quarter differs from black: its places get the whole weight of a max pooling."""
    embedder = small("gmp", "none")
    with torch.no_grad():
        for stage in embedder.backbone.stages:
            stage[0].weight.copy_(stage[0].weight.abs())
            stage[0].bias.zero_()
        embedder.pooling.projection.abs_()
    preprocessing = embedder.backbone.preprocessing
    black = tuple(round(255 * value) for value in preprocessing.mean)
    canvas = Image.new("RGB", (32, 32), black)
    canvas.paste((255, 255, 255), (18, 18, 32, 32))
    shares = explain(embedder, canvas).shares
    assert float(shares[2:, 2:].sum()) > 0.95


def test_prototypes_not_picked_yet_are_not_shown() -> None:
    found = explain(small("gsp", memory=64), picture(0))
    assert found.prototypes is None
    assert found.attributes is None
    assert explain_pair(small("gsp", memory=64), picture(0), picture(1)).prototypes is None


def test_background_prototypes_have_maps_but_no_part_in_the_similarity() -> None:
    embedder = Embedder(create_backbone("tiny"), GSP(32, 8, prototypes=3, memory=0, role="background"))
    assert explain(embedder, picture(0)).prototypes is not None
    assert explain_pair(embedder, picture(0), picture(1)).prototypes is None


def test_tokens_are_laid_on_a_square() -> None:
    assert _square(49) == (7, 7)
    with pytest.raises(InputError, match="50 tokens"):
        _square(50)


def test_explaining_leaves_no_gradients() -> None:
    embedder = small("gem")
    explain(embedder, picture(0))
    assert all(parameter.grad is None for parameter in embedder.parameters())


def test_training_goes_on_as_it_was() -> None:
    embedder = small()
    for training in (True, False):
        explain(embedder.train(training), picture(0))
        assert embedder.training == embedder.backbone.training == training


def test_a_broken_picture_names_itself(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"broken\.png"):
        explain(small(), tmp_path / "broken.png")


@pytest.mark.parametrize("name", ["gsp", "gmp", "otp"])
def test_pictures_are_written(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need pip install 'sumpool[plot]'")
    settings = {"memory": 0} if name == "gsp" else {}
    embedder = small(name, **settings)
    draw_explanation(explain(embedder, picture(0)), tmp_path / "new" / "one.png")
    draw_pair(explain_pair(embedder, picture(0), picture(1)), tmp_path / "new" / "pair.png")
    for file in ("one.png", "pair.png"):
        with Image.open(tmp_path / "new" / file) as drawn:
            colours = drawn.convert("RGB").getcolors(maxcolors=2**24)
        assert colours is not None
        assert len(colours) > 1000  # an empty canvas has one


def test_a_transformers_tokens_are_explained(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="hf: backbones need pip install 'sumpool[hf]'")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 32}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(tmp_path)
    embedder = Embedder(create_backbone(f"hf:{tmp_path}"), create_pooling("gem", 16, 8))
    pair = explain_pair(embedder, picture(0, 256), picture(1, 256))
    assert pair.query_shares.shape == (7, 7)
    assert float(pair.query_shares.sum()) == pytest.approx(pair.similarity, abs=1e-4)
