"""Any vision model of transformers (`pip install 'sumpool[hf]'`), by hub name or folder."""

import inspect
import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
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
        network = build(config)
        preprocessing = read_preprocessing(model) if architecture is None else Preprocessing(size=224)
        # Prefix tokens and stride are what the configuration suggests: `measure` corrects them and finds the channels.
        super().__init__(network, 0, preprocessing, extra_tokens(network), total_stride(config), as_map)
        self.rebuild = {"architecture": config.to_dict()}
        resizable = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if resizable else {}
        self.channels_last = False
        self.measure()

    def run(self, images: Tensor) -> Tensor:
        """The last hidden state, maps as (B,C,h,w)."""
        output: Tensor = self.model(pixel_values=images, **self.options).last_hidden_state
        return output.permute(0, 3, 1, 2) if self.channels_last else output

    def measure(self) -> None:
        """Learn from what the model makes of blank images how its output is to be read: configurations do not tell."""
        output = self.try_out()
        if output.dim() == 4:
            self.channels_last = output.shape[2] != output.shape[3]  # the images are square, so are maps of them
            self.out_features, self.prefix_tokens = output.shape[3 if self.channels_last else 1], 0
            return
        count, self.out_features = output.shape[1:]
        # First the tokens named in the model. Where the others form no grid: none, for the named one may belong to a
        # pooling head (AIMv2); or one that is computed and so has no name (DINOv3's ConvNeXt). More without a name are
        # not guessed: almost any count is a square and a rest.
        for extra in (self.prefix_tokens, 0, 1):
            stride = grid_stride(count - extra, self.preprocessing.size, self.stride)
            if stride:
                self.prefix_tokens, self.stride = extra, stride
                return
        if self.as_map:
            raise InputError(
                f"as_map expects a grid of tokens, got {count} of {type(self.model).__name__} for a square image of "
                f"{self.preprocessing.size} pixels: leave as_map off"
            )

    @torch.no_grad()
    def try_out(self) -> Tensor:
        """The output for blank images of the preprocessing's size, or else of the only size that the model takes.

        There are two images, for with one a model that packs its batch into one row of tokens would look like others.
        """
        given, config, training = self.preprocessing, self.model.config, self.model.training
        self.model.eval()
        for size in dict.fromkeys((given.size, side_of(getattr(config, "image_size", None)) or given.size)):
            images = torch.zeros(2, 3, size, size, dtype=self.model.dtype, device=self.model.device)
            try:
                output = self.run(images)
            except Exception as reason:  # a foreign model may fail in any way
                problem = first_line(reason)
                continue
            if output.dim() in (3, 4) and output.shape[0] == 2:
                self.model.train(training)
                self.preprocessing = replace(given, size=size, resize=round(size * given.resize / given.size))
                return output
            problem = f"shape {tuple(images.shape)} became {tuple(output.shape)}"
            break
        raise InputError(
            f"expected a vision model that makes a map or tokens of each image, got {type(self.model).__name__} "
            f"({problem}): choose another model"
        )

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
            raise InputError(f"transformers finds no weights of {source!r}: {first_line(reason)}") from reason
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
    """Side in pixels of what one token stands for: the patch, doubled at every later stage of a hierarchical model.

    0 where the configuration does not tell.
    """
    patch: Any = getattr(config, "patch_stride", None) or getattr(config, "patch_size", None) or 0
    side = patch if isinstance(patch, int) else patch[0]
    return int(side * 2 ** (len(getattr(config, "depths", [0])) - 1))


def grid_stride(tokens: int, size: int, declared: int) -> int:
    """The stride of a square grid of `tokens` over an image of side `size`; 0 where they form none.

    A declared stride must give that very grid. Without one it is the nearest power of two, for the models that declare
    none are hierarchical and halve the side at every stage.

    >>> grid_stride(27 * 27, 384, 14), grid_stride(7 * 7, 250, 0), grid_stride(7 * 7 + 1, 224, 0)
    (14, 32, 0)
    """
    side = math.isqrt(max(tokens, 0))
    if side == 0 or side * side != tokens:
        return 0
    if not declared:
        return int(2 ** round(math.log2(size / side)))
    return declared if side in (size // declared, -(-size // declared)) else 0  # models that pad the image round up


def build(config: Any) -> Any:
    """The model of a configuration with random weights."""
    try:
        return import_transformers().AutoModel.from_config(config)
    except (ImportError, ValueError) as reason:
        raise InputError(f"transformers cannot build {type(config).__name__}: {first_line(reason)}") from reason


def read_config(source: str) -> Any:
    """The model's configuration."""
    try:
        return import_transformers().AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as reason:
        raise InputError(f"transformers finds no model {source!r}: {first_line(reason)}") from reason


def read_preprocessing(source: str) -> Preprocessing:
    """`preprocessor_config.json` of the model as our record; ImageNet's values where it says nothing."""
    mixin = import_transformers().ImageProcessingMixin
    try:
        settings, _ = mixin.get_image_processor_dict(source)
    except OSError:
        return Preprocessing(size=224)
    size, resize = read_sizes(settings)
    mean, std, scale = read_values(settings)
    return Preprocessing(
        size=size,
        resize=resize,
        mean=mean,
        std=std,
        channels="bgr" if settings.get("do_flip_channel_order") else "rgb",
        scale=scale,
        interpolation="bicubic" if settings.get("resample") == 3 else "bilinear",
    )


def read_sizes(settings: dict[str, Any]) -> tuple[int, int]:
    """(side of the input, short side before the crop) of an image processor's settings.

    `crop_pct` is the share that the crop leaves of the short side. ConvNeXt's processor, which has no other crop,
    heeds it below 384 pixels only; LeViT's has a share of its own and no setting for it.
    """
    resize = side_of(settings.get("size"))
    crop = side_of(settings.get("crop_size")) if settings.get("do_center_crop", True) else 0
    size = crop or resize or 224
    levit = str(settings.get("image_processor_type") or settings.get("feature_extractor_type")).startswith("Levit")
    share = 224 / 256 if levit else settings.get("crop_pct")
    if share and (crop or size < 384):
        resize = int((resize or size) / share)
    return size, max(resize, size)


def read_values(settings: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """(mean, std, scale) of an image processor's settings.

    It computes (factor · pixel − offset − mean) / std, and we scale · (pixel/255 − mean) / std. EfficientNet's may
    subtract an offset of 1, and divides by its std once more if `include_top`. MobileViT's, which alone turns the
    channels round, never normalises, and its files hold means all the same.
    """
    flips = bool(settings.get("do_flip_channel_order"))
    normalises = settings.get("do_normalize", not flips)
    own_std = per_channel(settings.get("image_std"), Preprocessing.std)
    mean = per_channel(settings.get("image_mean"), Preprocessing.mean) if normalises else (0.0,) * 3
    std = own_std if normalises else (1.0,) * 3
    if settings.get("include_top"):
        std = tuple(one * two for one, two in zip(std, own_std, strict=True))
    scale = 255 * (settings.get("rescale_factor") or 1 / 255) if settings.get("do_rescale", True) else 255.0
    offset = 1.0 if settings.get("rescale_offset") else 0.0
    return tuple((value + offset) / scale for value in mean), std, scale


def per_channel(values: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    """One number for each of the three channels: a list, a number for all, or nothing."""
    if values is None:
        return default
    return (float(values),) * 3 if isinstance(values, int | float) else tuple(values)


def side_of(size: Any) -> int:
    """The shorter side a size of transformers means: a number, a list or a dictionary of sides; 0 for none."""
    sides = size.values() if isinstance(size, dict) else size if isinstance(size, list | tuple) else [size]
    return int(min((side for side in sides if side), default=0))


def first_line(reason: Exception) -> str:
    """What an exception of another library says, short enough for a sentence."""
    return (str(reason).strip() or type(reason).__name__).splitlines()[0]


def import_transformers() -> Any:
    """The package, or a sentence about how to get it."""
    try:
        return import_module("transformers")
    except ImportError as missing:
        raise InputError("hf: backbones need pip install 'sumpool[hf]'") from missing
