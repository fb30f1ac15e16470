"""Backbones: images in, local features out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from sumpool.backbones.base import Backbone
from sumpool.backbones.bn_inception import BNInception
from sumpool.backbones.conv4 import Conv4
from sumpool.backbones.efficientnet_lite import EfficientNetLite0
from sumpool.backbones.hf_models import HFBackbone
from sumpool.backbones.resnet20 import ResNet20, ResNetV2_20
from sumpool.backbones.resnet50 import ResNet50
from sumpool.backbones.timm_models import TimmBackbone
from sumpool.backbones.tiny import Tiny
from sumpool.backbones.tokens import Tokens
from sumpool.registry import create

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "bn_inception": BNInception,
    "resnet50": ResNet50,
    "efficientnet_lite0": EfficientNetLite0,
    "resnet20": ResNet20,
    "resnet_v2_20": ResNetV2_20,
    "tiny": Tiny,
    "conv4": Conv4,
    "tokens": Tokens,
    "timm:<model>": TimmBackbone,
    "hf:<model>": HFBackbone,
}

__all__ = ["BACKBONES", "Backbone", "create_backbone"]


def create_backbone(
    name: str,
    weights: str | Path | None = None,
    freeze_batchnorm: bool = False,
    freeze: int | Literal["all"] = 0,
    checkpointing: bool = False,
    **settings: Any,
) -> Backbone:
    """Build a backbone by name; `sumpool list backbones` shows the names.

    `weights` is the path of a weights file or "pretrained"; `freeze` is how many blocks, counted from the image, are
    not trained ("all" of them); frozen BatchNorms keep their statistics and affine parts.
    """
    library, colon, model = name.partition(":")
    entry, source = (f"{library}:<model>", {"model": model}) if colon else (name, {})
    backbone = create("backbone", BACKBONES, entry, **source, **settings)
    if weights is not None:
        backbone.load(weights)
    if checkpointing:
        backbone.use_checkpointing()
    training = {"freeze_batchnorm": freeze_batchnorm, "freeze": freeze, "checkpointing": checkpointing}
    backbone.config = {"name": name, **settings, **backbone.rebuild, **training}
    return backbone.freeze(freeze, freeze_batchnorm)
