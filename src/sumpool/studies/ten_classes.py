"""ResNet20 on ten classes that training and test share: what the studies of attributes and of GAP have in common."""

from pathlib import Path
from typing import Any

from sumpool.studies.base import Call
from sumpool.studies.collage import pretrained
from sumpool.training.config import TrainConfig

DIGITS: dict[str, Any] = {"dataset": "digits", "data_settings": {"shared": True}, "flip": 0.0}
CIFAR10: dict[str, Any] = {"dataset": "cifar10"}
SHARED = Path("out/cifar10-start")


def ten_classes(call: Call, steps: int, **more: Any) -> TrainConfig:
    """A training on all ten classes, validated once, at its end, on held-out images: no model is selected."""
    common: dict[str, Any] = {
        "data_root": call.data_root,
        "validate_on": "images",
        "folds": 20,
        "backbone": "resnet20",
        "freeze_batchnorm": False,
        "loss": "proxy_nca",
        "loss_settings": {"proxy_nca": {"lr_multiplier": 10.0}},
        "lr": 1e-3,
        "classes_per_batch": 10,
        "images_per_class": 8,
        "steps": steps,
        "validate_every": steps,
        "checkpoint_every": 100,
        "augment": "shift",
        "device": call.pick("cpu", "cpu", "auto"),
    }
    return TrainConfig(**{**common, **more})


def cifar10_start(call: Call) -> dict[str, Any]:
    """Where trainings on CIFAR-10 start: at a ResNet20 trained with GAP, made once for both studies.

    On a CPU only its last stage is trained further, in half the time.
    """
    settings = ten_classes(call, call.pick(2, 500, 10_000), pooling="gap", seed=100, **CIFAR10)
    return {**CIFAR10, "weights": str(pretrained(settings, SHARED)), "freeze": call.pick(0, 3, 0)}
