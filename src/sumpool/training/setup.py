"""From a configuration to the parts of a run: data, model, objective."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from sumpool.backbones import create_backbone
from sumpool.backbones.tokens import Tokens
from sumpool.data import (
    CentreCrop,
    ClassBalanced,
    Dataset,
    Loader,
    RandomResizedCrop,
    ShiftedCrop,
)
from sumpool.data.transforms import Transform
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.losses import Objective, create_objective
from sumpool.losses.chain import parse_chain
from sumpool.losses.zero_shot import required
from sumpool.pooling import create_pooling
from sumpool.pooling.base import Pooling
from sumpool.training.config import TrainConfig
from sumpool.training.processes import Processes
from sumpool.types import Preprocessing


class Data(NamedTuple):
    """The images of a run, each part with its transform."""

    train: Dataset
    validation: Dataset


def create_embedder(config: TrainConfig, dataset: Dataset) -> Embedder:
    """The model, its weights decided by the seed; a set with a size of its own keeps it, in the backbone's colours."""
    torch.manual_seed(config.seed)
    backbone = create_backbone(
        config.backbone,
        weights=config.weights,
        freeze_batchnorm=config.freeze_batchnorm,
        freeze=config.freeze,
        checkpointing=config.checkpointing,
        **config.backbone_settings,
    )
    if isinstance(backbone, Tokens) != dataset.records[0].is_tokens:
        raise InputError(
            f"backbone tokens and sets of tokens belong together, got {config.backbone} for {dataset.name}: "
            "choose another backbone or dataset"
        )
    if dataset.preprocessing is not None:
        own = dataset.preprocessing
        backbone.preprocessing = replace(backbone.preprocessing, size=own.size, resize=own.resize)
    pooling = create_pooling(config.pooling, backbone.out_features, config.dim, **config.pooling_settings)
    if "zsr" in parse_chain(config.loss):
        require_attributes(pooling)
    return Embedder(backbone, pooling, config.normalize)


@torch.no_grad()
def require_attributes(pooling: Pooling) -> None:
    """Refuse a pooling without attributes now, not in the first step; it pools a map of zeros to tell."""
    required(pooling.eval()(torch.zeros(1, pooling.in_features, 7, 7)).attributes)
    pooling.train()


def join_batchnorms(config: TrainConfig, embedder: Embedder, processes: Processes) -> None:
    """Let every BatchNorm that is trained see the batch of all processes; refuse where it would see only a part."""
    trained = any(isinstance(module, _BatchNorm) and module.training for module in embedder.train().modules())
    if not trained or (processes.count == 1 and not config.chunk):
        return
    if config.chunk or processes.device.type != "cuda":
        raise InputError(
            "a BatchNorm is trained and would see a part of the batch only, with chunk or with several processes on a "
            "CPU: set freeze_batchnorm and choose a pooling without BatchNorm"
        )
    nn.SyncBatchNorm.convert_sync_batchnorm(embedder)
    embedder.backbone.freeze(config.freeze, config.freeze_batchnorm)  # what is frozen may be a new module


def create_data(config: TrainConfig, dataset: Dataset, preprocessing: Preprocessing) -> Data:
    """Training and validation images."""
    train, validation = split(dataset, config)
    return Data(
        train.transformed(training_transform(config, preprocessing), config.seed),
        validation.transformed(CentreCrop(preprocessing)),
    )


def split(dataset: Dataset, config: TrainConfig) -> tuple[Dataset, Dataset]:
    """The training part, and the part on which models are selected."""
    splits = {record.split for record in dataset.records}
    chosen = config.validate_on
    if chosen == "auto":
        chosen = "val" if "val" in splits else "fold"
    train = dataset.split("train")
    if chosen in ("fold", "images"):
        return (train.hold_out if chosen == "fold" else train.hold_out_images)(config.folds, config.fold)
    if chosen not in splits:
        raise InputError(f"{dataset.name} has no {chosen} split to validate on; use validate_on fold")
    return train, dataset.split(chosen)


def training_transform(config: TrainConfig, preprocessing: Preprocessing) -> Transform:
    """What happens to a training image."""
    if config.augment == "crop":
        return RandomResizedCrop(preprocessing, config.crop_area, flip=config.flip)
    if config.augment == "shift":
        return ShiftedCrop(preprocessing, flip=config.flip)
    return CentreCrop(preprocessing)


def create_loader(config: TrainConfig, data: Data, processes: Processes) -> Loader:
    """Endless class-balanced batches, this process' share of them; an epoch is what lies between two validations."""
    sampler = ClassBalanced(
        data.train.labels,
        config.classes_per_batch,
        config.images_per_class,
        steps=config.validate_every,
        seed=config.seed,
        rank=processes.rank,
        world_size=processes.count,
    )
    pin = processes.device.type == "cuda"
    return Loader(data.train, sampler, config.readers, bad=config.bad_images, pin_memory=pin)


def create_training_objective(config: TrainConfig, data: Data, dim: int) -> Objective:
    """The objective over the training classes and embeddings of length `dim`."""
    torch.manual_seed(config.seed + 1)
    return create_objective(
        config.loss, len(data.train.classes), dim, preset=config.preset, settings=config.loss_settings
    )
