"""Any vision model of transformers (`pip install 'sumpool[hf]'`), by hub name or folder."""

import inspect
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from sumpool.backbones.wrapped import Wrapped
from sumpool.errors import InputError
from sumpool.types import Preprocessing

# What the tokens that are no patches are called in transformers' models.
EXTRA_TOKENS = ("cls_token", "class_token", "class_embedding", "distillation_token", "register_tokens")


class HFBackbone(Wrapped):
    """Any transformers vision model as `hf:facebook/dinov2-small` or `hf:folder`, with its own preprocessing."""

    def __init__(self, model: str, architecture: dict[str, Any] | None = None, as_map: bool = False) -> None:
        transformers = import_transformers()
        self.source = model
        config = read_config(model) if architecture is None else transformers.AutoConfig.for_model(**architecture)
        config = getattr(config, "vision_config", config)
        network = transformers.AutoModel.from_config(config)
        channels = getattr(config, "hidden_sizes", None) or [config.hidden_size]
        preprocessing = read_preprocessing(model) if architecture is None else Preprocessing()
        super().__init__(network, channels[-1], preprocessing, extra_tokens(network), total_stride(config), as_map)
        self.rebuild = {"architecture": config.to_dict()}
        resizable = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if resizable else {}

    def run(self, images: Tensor) -> Tensor:
        """The last hidden state."""
        output: Tensor = self.model(pixel_values=images, **self.options).last_hidden_state
        return output

    def use_checkpointing(self) -> None:
        """The model's own switch, where it has one."""
        if not self.model.supports_gradient_checkpointing:
            raise InputError(
                f"{type(self.model).__name__} of transformers has no gradient checkpointing: switch it off"
            )
        self.model.gradient_checkpointing_enable({"use_reentrant": False})

    def load_pretrained(self) -> None:
        """The weights of the folder or hub repository."""
        self.model.load_state_dict(self.translate(self.source))

    def layout(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file of the model, or of a classifier built on it, whose head is left out."""
        return super().layout(self.translate(None, config=self.model.config, state_dict=weights))

    def translate(self, source: str | None, **options: Any) -> dict[str, Tensor]:
        """A state dictionary that transformers itself reads: its files have other names than its models.

        A pooler, which comes after the local features, may be missing.
        """
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        try:
            network, report = type(self.model).from_pretrained(source, **options)
        except OSError as reason:
            raise InputError(f"transformers finds no weights of {source!r}: {str(reason).splitlines()[0]}") from reason
        wrong = [
            f"{key!r} has shape {tuple(got)}, expected {tuple(want)}" for key, got, want in report["mismatched_keys"]
        ]
        missing = [key for key in report["missing_keys"] if not key.startswith("pooler.")]
        shapes = {key: tuple(value.shape) for key, value in self.model.state_dict().items()}
        wrong += [f"{key!r} of shape {shapes[key]} is missing" for key in missing]
        if wrong:
            raise InputError(f"the weights do not fit {type(network).__name__}: {min(wrong)}")
        state: dict[str, Tensor] = network.state_dict()
        return state


def extra_tokens(network: nn.Module) -> int:
    """How many class, distillation and register tokens stand before the patches."""
    tokens = [p for name, p in network.named_parameters() if name.rpartition(".")[2] in EXTRA_TOKENS]
    return sum(token.numel() // token.shape[-1] for token in tokens)


def total_stride(config: Any) -> int:
    """Side in pixels of what one token stands for: the patch, doubled at every later stage of a hierarchical model."""
    patch = getattr(config, "patch_size", 1)
    side = patch if isinstance(patch, int) else patch[0]
    return int(side * 2 ** (len(getattr(config, "depths", [0])) - 1))


def read_config(source: str) -> Any:
    """The model's configuration."""
    try:
        return import_transformers().AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as reason:
        raise InputError(f"transformers finds no model {source!r}: {str(reason).splitlines()[0]}") from reason


def read_preprocessing(source: str) -> Preprocessing:
    """`preprocessor_config.json` of the model as our record; ImageNet's values where it says nothing."""
    mixin = import_transformers().ImageProcessingMixin
    try:
        settings, _ = mixin.get_image_processor_dict(source)
    except OSError:
        return Preprocessing(size=224)
    crop, resize = side_of(settings.get("crop_size")), side_of(settings.get("size"))
    size = crop or resize or 224
    return Preprocessing(
        size=size,
        resize=max(resize or size, size),
        mean=tuple(settings.get("image_mean", Preprocessing.mean)),
        std=tuple(settings.get("image_std", Preprocessing.std)),
        interpolation="bicubic" if settings.get("resample") == 3 else "bilinear",
    )


def side_of(size: Any) -> int:
    """The shorter side a size of transformers means: a number, or a dictionary of sides; 0 when there is none."""
    sides = size.values() if isinstance(size, dict) else [size or 0]
    return int(min(sides))


def import_transformers() -> Any:
    """The package, or a sentence about how to get it."""
    try:
        return import_module("transformers")
    except ImportError as missing:
        raise InputError("hf: backbones need pip install 'sumpool[hf]'") from missing
