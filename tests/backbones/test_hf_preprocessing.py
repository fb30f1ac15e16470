"""What the settings of transformers' image processors become, against the processors themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool.backbones.hf_models import read_preprocessing
from sumpool.data.transforms import CentreCrop
from sumpool.types import Preprocessing

transformers = pytest.importorskip("transformers", reason="hf: backbones need pip install 'sumpool[hf]'")
SQUARE = {"height": 32, "width": 32}
# Processor, its settings, and the short side to which it resizes.
PROCESSORS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ConvNeXt": ("ConvNext", {"size": {"shortest_edge": 224}}, 256),
    "ConvNeXt from 384 pixels on": ("ConvNext", {"size": {"shortest_edge": 384}}, 384),
    "PoolFormer": ("PoolFormer", {"size": {"shortest_edge": 36}, "crop_size": {"height": 36, "width": 36}}, 40),
    "LeViT": ("Levit", {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}, 32),
    "MobileViT": ("MobileViT", {"size": {"shortest_edge": 40}, "crop_size": SQUARE}, 40),
    "MobileNet": ("MobileNetV2", {"size": {"shortest_edge": 40}, "crop_size": SQUARE}, 40),
    "EfficientNet": ("EfficientNet", {"size": SQUARE, "image_std": [0.4, 0.5, 0.6]}, 32),
    "EfficientNet with offset": (
        "EfficientNet", {"size": SQUARE, "rescale_offset": True, "rescale_factor": 1 / 127.5, "include_top": False}, 32
    ),
    "EfficientNet not normalised": ("EfficientNet", {"size": SQUARE, "do_normalize": False}, 32),
    "PVT": ("Pvt", {"size": SQUARE, "image_mean": [0.1, 0.2, 0.3]}, 32),
    "not normalised": ("ViT", {"size": SQUARE, "do_normalize": False, "image_mean": None}, 32),
    "not rescaled": ("ViT", {"size": SQUARE, "do_rescale": False, "image_mean": [9, 8, 7], "image_std": [4, 5, 6]}, 32),
    "one number for all channels": ("ViT", {"size": SQUARE, "image_mean": 0.25, "image_std": 0.75}, 32),
}  # fmt: skip


@pytest.mark.parametrize("case", PROCESSORS)
def test_pixels_are_what_the_processor_makes(case: str, tmp_path: Path) -> None:
    name, settings, side = PROCESSORS[case]
    processor = getattr(transformers, f"{name}ImageProcessorPil", None)
    if processor is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name} processor without torchvision")
    processor(**settings).save_pretrained(tmp_path)
    # Of the very side to which the processor resizes: its two resamplings and our one then change no pixel.
    values = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    picture = Image.fromarray(values)
    preprocessing = read_preprocessing(str(tmp_path))
    assert preprocessing.resize == side
    expected = processor.from_pretrained(tmp_path)(picture, return_tensors="pt")["pixel_values"][0]
    found = CentreCrop(preprocessing)(picture, np.random.default_rng(0))
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # As apple/mobilevit-small and facebook/convnext-tiny-224 have them, from the time before image processors.
        (
            {"crop_size": 256, "do_center_crop": True, "do_flip_channel_order": True, "size": 288, "resample": 2},
            Preprocessing(256, 288, (0.0,) * 3, (1.0,) * 3, "bgr"),
        ),
        ({"size": 224, "crop_pct": 0.875, "resample": 3}, Preprocessing(224, 256, interpolation="bicubic")),
        ({"size": 224, "image_mean": None, "image_std": None}, Preprocessing(224, 224)),
        ({"size": {"shortest_edge": 224, "longest_edge": None}, "rescale_factor": None}, Preprocessing(224, 224)),
        ({"size": 224, "crop_size": 289, "do_center_crop": False}, Preprocessing(224, 224)),
        ({}, Preprocessing(224, 224)),
        (None, Preprocessing(224, 256)),
    ],
)
def test_old_and_incomplete_files(settings: dict[str, Any] | None, expected: Preprocessing, tmp_path: Path) -> None:
    if settings is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert read_preprocessing(str(tmp_path)) == expected
