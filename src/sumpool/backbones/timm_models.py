"""Any model of timm (`pip install 'sumpool[timm]'`), by the name timm gives it."""

from importlib import import_module
from typing import Any

from torch import Tensor

from sumpool.backbones.wrapped import Wrapped
from sumpool.errors import InputError
from sumpool.types import Preprocessing


class TimmBackbone(Wrapped):
    """Any timm model as `timm:resnet50d`; with its own preprocessing; `weights="pretrained"` are timm's."""

    def __init__(self, model: str, as_map: bool = False) -> None:
        self.source = model
        network = self.build(pretrained=False)
        patch = getattr(getattr(network, "patch_embed", None), "patch_size", (1, 1))
        prefix = int(getattr(network, "num_prefix_tokens", 0))
        super().__init__(network, network.num_features, preprocessing_of(network), prefix, int(patch[0]), as_map)

    def build(self, pretrained: bool) -> Any:
        """The timm model without its classifier and pooling."""
        timm = import_timm()
        if not timm.is_model(self.source.split(".")[0]):
            raise InputError(f"timm has no model {self.source!r}: see timm.list_models()")
        return timm.create_model(self.source, pretrained=pretrained, num_classes=0, global_pool="")

    def run(self, images: Tensor) -> Tensor:
        """Maps as (B,C,h,w), also of the models that keep channels last."""
        output: Tensor = self.model.forward_features(images)
        channels_last = output.dim() == 4 and output.shape[1] != self.out_features
        return output.permute(0, 3, 1, 2) if channels_last else output

    def use_checkpointing(self) -> None:
        """timm's own switch."""
        self.model.set_grad_checkpointing(True)

    def load_pretrained(self) -> None:
        """Weights from timm's hub."""
        self.model.load_state_dict(self.build(pretrained=True).state_dict())

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file of the full timm model, whose classifier is left out."""
        head = self.model.default_cfg.get("classifier") or ()
        heads = tuple(f"{name}." for name in ([head] if isinstance(head, str) else head))
        return super().layout({key: value for key, value in weights.items() if not key.startswith(heads)})


def preprocessing_of(network: Any) -> Preprocessing:
    """timm's data configuration as our record."""
    settings = import_timm().data.resolve_model_data_config(network)
    size = settings["input_size"][-1]
    return Preprocessing(
        size=size,
        resize=round(size / settings["crop_pct"]),
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        interpolation="bicubic" if settings["interpolation"] == "bicubic" else "bilinear",
    )


def import_timm() -> Any:
    """The package, or a sentence about how to get it."""
    try:
        return import_module("timm")
    except (ImportError, RuntimeError) as broken:  # RuntimeError: torchvision built for another torch
        raise InputError(f"timm: backbones need pip install 'sumpool[timm]' ({broken})") from broken
