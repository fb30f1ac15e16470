"""Everything that decides a training run, in one record: what `config.yaml` in a run folder holds."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import yaml

from sumpool.errors import InputError
from sumpool.registry import check_type, nearest

# What else decides the keyword arguments of a component: names that its settings may not hold.
TAKEN = {
    "data_settings": {"name": "dataset", "root": "data_root"},
    "backbone_settings": {"name": "backbone"}
    | {name: name for name in ("weights", "freeze_batchnorm", "freeze", "checkpointing")},
    "pooling_settings": {"name": "pooling", "in_features": "backbone", "dim": "dim"},
}


@dataclass(frozen=True)
class TrainConfig:
    """The configuration of a training run.

    Args:
        dataset: name of a dataset (`sumpool list datasets`) or a path: folder of classes, manifest, pack
        data_root: folder of published datasets (default: the SUMPOOL_DATA environment variable)
        data_settings: keyword arguments of the dataset
        validate_on: where models are selected: "val", the set's own validation split; "fold", a held-out range of the
            training classes; "images", a part of every training class, for tests on the same classes; "test", the test
            classes (old practice, not a fair estimate); "auto", val if there is one, else fold
        folds: how many contiguous ranges the training classes, or parts each class, are cut into
        fold: which of them is held out
        backbone: name of a backbone (`sumpool list backbones`)
        backbone_settings: keyword arguments of the backbone
        weights: weights file of the backbone, or "pretrained"
        freeze_batchnorm: keep BatchNorm statistics and affine parts as they are
        freeze: how many blocks of the backbone are not trained, or "all"
        checkpointing: recompute activations in the backward pass to save memory
        cache: folder where the local features of a backbone with freeze all are kept; they are computed once, in
            float32 whatever the precision of the training
        cache_views: augmented views of each training image in the cache; 0 keeps one, transformed as in testing
        cache_dtype: "float32", or "float16" for half the size
        cache_gb: most gigabytes the cache may take; entries of other runs are removed, the longest unused first
        pooling: name of a pooling (`sumpool list poolings`)
        pooling_settings: keyword arguments of the pooling
        dim: length of the embedding; null pools the backbone's own channels without a projection
        normalize: "unit", "lipschitz" or "none"
        loss: chain of loss names, such as zsr/xbm/original_contrastive
        loss_settings: keyword arguments per name of the chain
        preset: dataset whose published loss settings are used (cub, cars, inshop, sop)
        ccp_settings: keyword arguments of the alternating problems when the chain has ccp
        optimizer: "adam" (weight decay as L2 gradient) or "adamw" (decoupled)
        lr: learning rate
        weight_decay: not applied to norms, biases and proxies
        betas: moment parameters
        clip_norm: largest norm of the gradient, 0 for no limit
        warmup: steps in which only pooling and loss are trained
        plateau_patience: validations without improvement after which the learning rate is multiplied by plateau_factor;
            0 keeps it constant
        plateau_factor: see plateau_patience
        classes_per_batch: classes in a batch, over all processes
        images_per_class: images of each class in a batch
        chunk: embed a batch in chunks of this many images, so that big batches fit; 0 embeds it at once
        steps: most training steps
        validate_every: steps between validations
        patience: validations without improvement after which training stops
        min_delta: smallest improvement of the score that counts
        score: the metric that selects the model
        distance: how validation ranks embeddings: "cosine" or "euclidean"
        augment: "crop" random resized crops (photos), "shift" small shifts (small images), "none" the test transform
        crop_area: smallest and largest share of the image for "crop"
        flip: probability of mirroring a training image
        precision: "float32", "bf16" or "fp16"
        compile: compile the embedder
        ema: decay of an exponential moving average of the weights, which is then validated and kept; 0 for none
        device: "auto", "cpu", "cuda" or "mps"
        workers: processes that decode images
        bad_images: "raise" stops at an unreadable image, "skip" leaves it out with a warning
        checkpoint_every: steps between checkpoints; 0 means at every validation
        seed: of weights, batches and augmentation
    """

    dataset: str
    data_root: str | None = None
    data_settings: dict[str, Any] = field(default_factory=dict)
    validate_on: Literal["auto", "val", "fold", "images", "test"] = "auto"
    folds: int = 4
    fold: int = 3
    backbone: str = "resnet50"
    backbone_settings: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    freeze_batchnorm: bool = True
    freeze: int | Literal["all"] = 0
    checkpointing: bool = False
    cache: str | None = None
    cache_views: int = 0
    cache_dtype: Literal["float32", "float16"] = "float32"
    cache_gb: float = 50.0
    pooling: str = "gsp"
    pooling_settings: dict[str, Any] = field(default_factory=dict)
    dim: int | None = 128
    normalize: str = "unit"
    loss: str = "zsr/contrastive"
    loss_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    preset: str | None = None
    ccp_settings: dict[str, Any] = field(default_factory=dict)
    optimizer: Literal["adam", "adamw"] = "adam"
    lr: float = 1e-5
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float = 10.0
    warmup: int = 0
    plateau_patience: int = 0
    plateau_factor: float = 0.5
    classes_per_batch: int = 8
    images_per_class: int = 4
    chunk: int = 0
    steps: int = 20_000
    validate_every: int = 100
    patience: int = 15
    min_delta: float = 1e-5
    score: str = "map@r"
    distance: Literal["cosine", "euclidean"] = "cosine"
    augment: Literal["crop", "shift", "none"] = "crop"
    crop_area: tuple[float, float] = (0.0244140625, 1.0)  # sides from 40 to 256 of a short side of 256
    flip: float = 0.5
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    compile: bool = False
    ema: float = 0.0
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    workers: int = 0
    bad_images: Literal["raise", "skip"] = "raise"
    checkpoint_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for entry in fields(self):
            check_type(entry.name, getattr(self, entry.name), entry.type)
        for name, taken in TAKEN.items():
            for key in taken.keys() & (getattr(self, name) or {}).keys():
                raise InputError(f"{name} cannot hold {key!r}: the setting {taken[key]!r} decides it")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be at least 0 and below 2^63, got {self.seed}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be two numbers in [0, 1), got {self.betas}")
        at_least = {"steps": 1, "validate_every": 1, "patience": 1, "chunk": 0, "warmup": 0, "plateau_patience": 0}
        at_least |= {"lr": 0, "weight_decay": 0, "clip_norm": 0, "checkpoint_every": 0, "workers": 0}
        at_least |= {"cache_views": 0, "cache_gb": 0} | ({} if self.dim is None else {"dim": 1})
        for name, low in at_least.items():
            if not getattr(self, name) >= low:
                raise InputError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.lr == math.inf:
            raise InputError("lr must be finite, got inf")
        if not 0 <= self.ema < 1:
            raise InputError(f"ema must be in [0, 1), got {self.ema}")
        if not 0 < self.plateau_factor < 1:
            raise InputError(f"plateau_factor must be between 0 and 1, got {self.plateau_factor}")
        if self.cache is not None and self.freeze != "all":
            raise InputError(f"a cache holds the features of a frozen backbone: use freeze all, got {self.freeze}")
        if self.cache_views > 1 and self.augment == "none":
            raise InputError(f"augment none has one view of an image, got cache_views {self.cache_views}")
        if self.ccp_settings and "ccp" not in self.loss.split("/"):
            raise InputError(f"ccp_settings are given, but the loss {self.loss!r} has no ccp")

    @property
    def readers(self) -> int:
        """Processes that prepare batches: none for cached features, which are copied faster than sent."""
        return self.workers if self.cache is None else 0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """The record of plain values; an unknown key is refused with the nearest name."""
        known = {entry.name for entry in fields(cls)}
        for key in values:
            if key not in known:
                raise InputError(f"unknown setting {key!r}: {nearest(key, known)}")
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})


def to_yaml(config: TrainConfig) -> str:
    """The complete configuration as a file for `sumpool train --config`."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with `more` put on top, dictionaries inside merged as well.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    both = {key: merged(values[key], more[key]) for key in more if isinstance(values.get(key), Mapping)}
    return {**values, **more, **both}
