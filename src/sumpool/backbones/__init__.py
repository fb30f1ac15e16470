"""Backbones: images in, local features out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from sumpool.backbones.base import Backbone
from sumpool.backbones.resnet50 import ResNet50
from sumpool.registry import create

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "resnet50": ResNet50,
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
    backbone = create("backbone", BACKBONES, name, **settings)
    if weights is not None:
        backbone.load(backbone.pretrained() if weights == "pretrained" else weights)
    if checkpointing:
        backbone.use_checkpointing()
    backbone.config = {
        "name": name,
        **settings,
        "freeze_batchnorm": freeze_batchnorm,
        "freeze": freeze,
        "checkpointing": checkpointing,
    }
    return backbone.freeze(freeze, freeze_batchnorm)
