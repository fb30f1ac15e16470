"""Backbones of transformers with small random models, and of timm where it can be imported."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sumpool.backbones import create_backbone
from sumpool.backbones.timm_models import import_timm
from sumpool.errors import InputError

transformers = pytest.importorskip("transformers", reason="hf: backbones need pip install 'sumpool[hf]'")
VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32}
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "dinov2": ({**VIT, "patch_size": 8}, 1),
    "dinov2_with_registers": ({**VIT, "patch_size": 8, "num_register_tokens": 3}, 4),
    "vit": ({**VIT, "patch_size": 8}, 1),
    "clip_vision_model": ({**VIT, "patch_size": 8}, 1),
    "siglip_vision_model": ({**VIT, "patch_size": 8}, 0),
    "dinov3_vit": ({**VIT, "patch_size": 8, "num_register_tokens": 2}, 3),
    "swin": ({"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2],
              "window_size": 4}, 0),
    "resnet": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, 0),
    "convnext": ({"hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1]}, 0),
    "dinov3_convnext": ({"hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1]}, 1),
    "efficientnet": ({"width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128}, 0),
    "mobilenet_v1": ({"depth_multiplier": 0.05}, 0),
    "mobilenet_v2": ({"depth_multiplier": 0.05}, 0),
    "mobilevit": ({"hidden_sizes": [8, 8, 8], "neck_hidden_sizes": [4, 4, 4, 4, 4, 4, 16]}, 0),
    "pvt": ({"image_size": 32, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1],
             "num_attention_heads": [1, 1, 1, 2]}, 1),
    "hiera": ({"image_size": [32, 32], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "num_query_pool": 1}, 0),
    "aimv2_vision_model": ({**VIT, "patch_size": 8}, 0),  # it has a class token, in its pooling head
}  # fmt: skip
# Models that make no map or tokens of each image; the last does, but its tokens are not all patches.
OTHERS: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    "pixtral": {**VIT, "patch_size": 8, "head_dim": 8},  # packs the images of a batch into one row
    "hgnet_v2": {"hidden_sizes": [8, 8, 8, 8], "stem_channels": [3, 4, 4]},  # gives a list of maps
    "yolos": {**VIT, "patch_size": 8, "image_size": [32, 32], "num_detection_tokens": 3},
}


def save_model(kind: str, settings: dict[str, Any], folder: Path) -> None:
    """A random model; skipped where this version of transformers has no such class."""
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    config = transformers.AutoConfig.for_model(kind, **settings)
    transformers.AutoModel.from_config(config).save_pretrained(folder)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A saved random model of the type given by indirect parametrisation, with a preprocessing file."""
    save_model(request.param, MODELS[request.param][0], tmp_path)
    preprocessing = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}, "resample": 3,
                     "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessing))
    return tmp_path


@pytest.mark.parametrize(("folder", "kind"), [(kind, kind) for kind in MODELS], indirect=["folder"])
def test_patches_are_the_models_own_without_the_extra_tokens(folder: Path, kind: str) -> None:
    backbone = create_backbone(f"hf:{folder}", weights="pretrained").eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = backbone(images)
        expected = transformers.AutoModel.from_pretrained(folder).eval()(pixel_values=images).last_hidden_state
    extra = MODELS[kind][1]
    assert backbone.prefix_tokens == extra
    torch.testing.assert_close(features, expected if expected.dim() == 4 else expected[:, extra:])
    assert features.shape[1 if features.dim() == 4 else 2] == backbone.out_features


@pytest.mark.parametrize("folder", ["dinov2_with_registers"], indirect=True)
def test_class_and_register_tokens_are_beside_the_patches(folder: Path) -> None:
    backbone = create_backbone(f"hf:{folder}").eval()
    extra, patches = backbone.tokens(torch.randn(2, 3, 32, 48))
    assert extra.shape == (2, 4, 16)
    assert patches.shape == (2, 4 * 6, 16)


@pytest.mark.parametrize("folder", ["dinov2", "swin"], indirect=True)
def test_tokens_as_a_map_keep_their_places(folder: Path) -> None:
    tokens = create_backbone(f"hf:{folder}", weights="pretrained").eval()
    grid = create_backbone(f"hf:{folder}", weights="pretrained", as_map=True).eval()
    images = torch.randn(1, 3, 32, 48)
    with torch.no_grad():
        one, two = tokens(images), grid(images)
    assert two.shape == (1, 16, 4, 6)
    torch.testing.assert_close(two[0, :, 2, 3], one[0, 2 * 6 + 3])


@pytest.mark.parametrize("folder", ["swin"], indirect=True)
def test_a_model_that_pads_the_image_has_a_larger_map(folder: Path) -> None:
    backbone = create_backbone(f"hf:{folder}", as_map=True)
    assert backbone(torch.randn(1, 3, 36, 60)).shape == (1, 16, 5, 8)


@pytest.mark.parametrize("folder", ["dinov3_convnext"], indirect=True)
def test_a_class_token_without_parameters_is_kept_apart(folder: Path) -> None:
    backbone = create_backbone(f"hf:{folder}", weights="pretrained", as_map=True).eval()
    images = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        features, (pooled, _) = backbone(images), backbone.tokens(images)
        network = backbone.model
        own = network.layer_norm(network.model(images).last_hidden_state.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        expected = network(images).pooler_output
    assert features.shape == (2, 16, 2, 3)
    torch.testing.assert_close(features, own)
    torch.testing.assert_close(pooled[:, 0], expected)


@pytest.mark.parametrize("folder", ["hiera"], indirect=True)
def test_tokens_in_units_are_put_in_their_places(folder: Path) -> None:
    backbone = create_backbone(f"hf:{folder}", weights="pretrained", as_map=True).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = backbone(images)
        own = backbone.model(images, output_hidden_states=True).reshaped_hidden_states[-1]
    assert features.shape == (2, 16, 4, 4)
    torch.testing.assert_close(features, own.permute(0, 3, 1, 2))


def test_a_model_of_one_size_says_which(tmp_path: Path) -> None:
    save_model("pvt", {**MODELS["pvt"][0], "image_size": 64}, tmp_path)
    backbone = create_backbone(f"hf:{tmp_path}", as_map=True)
    assert (backbone.preprocessing.size, backbone.preprocessing.resize) == (64, 73)
    assert backbone(torch.randn(1, 3, 64, 64)).shape == (1, 16, 2, 2)


def test_half_precision_is_measured_too(tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model("dinov2", **MODELS["dinov2"][0])
    transformers.AutoModel.from_config(config).to(torch.bfloat16).save_pretrained(tmp_path)
    backbone = create_backbone(f"hf:{tmp_path}", weights="pretrained")
    assert (backbone.out_features, backbone.prefix_tokens) == (16, 1)
    assert backbone.training


@pytest.mark.parametrize("kind", ["bert", "pixtral", "hgnet_v2"])
def test_models_without_features_per_image_are_refused(kind: str, tmp_path: Path) -> None:
    save_model(kind, OTHERS[kind], tmp_path)
    with pytest.raises(InputError, match="expected a vision model that makes a map or tokens of each image, got"):
        create_backbone(f"hf:{tmp_path}")


def test_tokens_that_form_no_grid_are_no_map(tmp_path: Path) -> None:
    save_model("yolos", OTHERS["yolos"], tmp_path)
    assert create_backbone(f"hf:{tmp_path}").prefix_tokens == 1
    with pytest.raises(InputError, match=r"expects a grid of tokens, got 788 of YolosModel .* leave as_map off"):
        create_backbone(f"hf:{tmp_path}", as_map=True)


@pytest.mark.parametrize("folder", ["vit"], indirect=True)
def test_a_stride_that_does_not_fit_is_no_map(folder: Path) -> None:
    backbone = create_backbone(f"hf:{folder}", as_map=True)
    backbone.stride = 16
    with pytest.raises(InputError, match="one token per 16×16 pixels, got 16 tokens for 32×32 pixels: leave as_map"):
        backbone(torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize("folder", ["dinov2"], indirect=True)
def test_local_weights_also_of_a_classifier(folder: Path) -> None:
    own = load_file(folder / "model.safetensors")
    expected = transformers.AutoModel.from_pretrained(folder).state_dict()
    classifier = {f"dinov2.{key}": value for key, value in own.items()} | {"classifier.bias": torch.zeros(3)}
    save_file(classifier, folder / "classifier.safetensors")
    for file in ("model.safetensors", "classifier.safetensors"):
        backbone = create_backbone(f"hf:{folder}", weights=folder / file)
        for key, value in expected.items():
            assert torch.equal(backbone.model.state_dict()[key], value), key
    own["layernorm.weight"] = torch.zeros(7)
    save_file(own, folder / "wrong.safetensors")
    with pytest.raises(InputError, match=r"'layernorm.weight' has shape \(7,\), expected \(16,\)"):
        create_backbone(f"hf:{folder}", weights=folder / "wrong.safetensors")
    del own["layernorm.bias"], own["layernorm.weight"]
    save_file(own, folder / "wrong.safetensors")
    with pytest.raises(InputError, match=r"'layernorm\.bias' of shape \(16,\) is missing"):
        create_backbone(f"hf:{folder}", weights=folder / "wrong.safetensors")


@pytest.mark.parametrize("folder", ["dinov2", "resnet", "dinov3_convnext", "mobilevit", "pvt", "hiera"], indirect=True)
def test_rebuilt_from_its_configuration_alone(folder: Path) -> None:
    first = create_backbone(f"hf:{folder}", weights="pretrained").eval()
    config = json.loads(json.dumps(first.config)) | {"name": "hf:gone"}
    second = create_backbone(**config).eval()
    assert second.out_features == first.out_features
    second.load_state_dict(first.state_dict())
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(second(images), first(images))


@pytest.mark.parametrize("folder", ["dinov2"], indirect=True)
def test_freezing_and_checkpointing_of_a_transformer(folder: Path) -> None:
    plain = create_backbone(f"hf:{folder}", weights="pretrained", freeze=2)
    frugal = create_backbone(f"hf:{folder}", weights="pretrained", freeze=2, checkpointing=True)
    trained = {key for key, value in plain.named_parameters() if value.requires_grad}
    assert {key.split(".")[1] for key in trained} == {"encoder", "layernorm"}
    assert not any(".layer.0." in key for key in trained)
    images = torch.randn(2, 3, 32, 32)
    for backbone in (plain, frugal):
        backbone.train()(images).square().mean().backward()
    assert frugal.model.encoder.layer[1].gradient_checkpointing
    for (key, one), two in zip(plain.named_parameters(), frugal.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, msg=key)


@pytest.mark.parametrize("folder", ["resnet"], indirect=True)
def test_models_without_a_checkpointing_switch_say_so(folder: Path) -> None:
    with pytest.raises(InputError, match="no gradient checkpointing"):
        create_backbone(f"hf:{folder}", checkpointing=True)


@pytest.mark.parametrize("folder", ["vit"], indirect=True)
def test_a_folder_without_weights_says_so(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="finds no weights of"):
        create_backbone(f"hf:{folder}", weights="pretrained")


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="finds no model"):
        create_backbone(f"hf:{tmp_path}/nothing")


def timm_problem() -> str | None:
    """Why timm cannot be used here, or None."""
    try:
        import_timm()
    except InputError as reason:
        return str(reason)
    return None


def test_timm_absent_names_the_extra() -> None:
    if timm_problem() is None:
        pytest.skip("timm is installed")
    with pytest.raises(InputError, match=r"sumpool\[timm\]"):
        create_backbone("timm:resnet18")


@pytest.mark.skipif(timm_problem() is not None, reason=str(timm_problem()))
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("resnet18", (1, 512, 7, 7)),
        ("vit_tiny_patch16_224", (1, 196, 192)),
        ("swin_tiny_patch4_window7_224", (1, 768, 7, 7)),
    ],
)
def test_timm_models(model: str, shape: tuple[int, ...]) -> None:
    backbone = create_backbone(f"timm:{model}", freeze=1, freeze_batchnorm=True, checkpointing=True).eval()
    with torch.no_grad():
        features = backbone(torch.randn(1, 3, 224, 224))
    assert features.shape == shape
    assert create_backbone(**backbone.config).config == backbone.config
