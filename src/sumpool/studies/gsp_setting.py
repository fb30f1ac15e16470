"""Where GSP's own settings are studied: letters among symbols on a CPU, CUB under the tuning protocol at full size."""

from typing import Any

from sumpool.evaluation.methods import expand, parse_method
from sumpool.evaluation.trial import Part
from sumpool.studies.base import Call
from sumpool.studies.collage import pretrained
from sumpool.studies.glyph_collage import pretraining
from sumpool.training.config import TrainConfig

SMALL: dict[str, Any] = {"backbone": "conv4", "backbone_settings": {"channels": 128}}


def scored_part(call: Call) -> Part:
    """The classes that are scored: at full size, as in the text, those on which settings are tuned."""
    part: Part = call.pick("test", "test", "validation")
    return part


def gsp_setting(call: Call, method: str = "C2+GSP") -> TrainConfig:
    """The training of a method, by its published name."""
    given: dict[str, Any] = (
        {"dataset": "cub", "data_root": call.data_root} if call.scale == "paper" else letters_among_symbols(call)
    )
    return TrainConfig.from_dict(expand(parse_method(method), "tuning", given))


def letters_among_symbols(call: Call) -> dict[str, Any]:
    """Collages through a frozen network that has learned single letters and symbols of the training classes."""
    data: dict[str, Any] = call.pick({"per_class": 4, "classes": 40}, {"per_class": 10}, None)
    common: dict[str, Any] = {**SMALL, "augment": "shift", "flip": 0.0, "device": "cpu"}
    letters = call.pick(data, {"per_class": 20}, None)
    return {
        **common,
        "dataset": "glyph-collage",
        "data_settings": data,
        "validate_on": "val",
        "weights": str(pretrained(pretraining(call, letters, common), call.work)),
        "freeze": "all",
        "cache": str(call.work / "features"),
        "augment": "none",
        "pooling_settings": {"memory": call.pick(128, 1024, None)},
        "lr": 1e-3,
        "classes_per_batch": 16,
        "images_per_class": 4,
        "warmup": 0,
        "steps": call.pick(3, 400, None),
        "validate_every": call.pick(3, 100, None),
        "patience": 100,
    }
