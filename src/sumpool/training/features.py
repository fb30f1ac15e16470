"""Train on a frozen backbone's local features, computed once: only pooling and loss run in a step."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from filelock import FileLock
from torch import Tensor

from sumpool.backbones import Backbone
from sumpool.data import CentreCrop, Dataset, Draw, Loader
from sumpool.data.dataset import Sample
from sumpool.data.progress import counted
from sumpool.data.samplers import BatchSampler, chunks
from sumpool.embedder import Embedder
from sumpool.embedder.storage import backbone_config, fingerprint
from sumpool.errors import InputError
from sumpool.training.config import TrainConfig
from sumpool.training.feature_store import FeatureStore, make_room, stamp
from sumpool.training.processes import Processes, anyone
from sumpool.training.setup import Data
from sumpool.types import Pooled

BATCH = 32


class FromFeatures(Embedder):
    """An embedder that is given local features in place of images; what it saves is the complete model."""

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Pooled:
        """Pool and normalise."""
        return self.pool(features, mask)


class FeatureSet(Dataset):
    """A dataset whose samples are local features in place of images.

    The source of a record is an array (views, …); a draw decides which view is seen, as it decides on augmentation.
    """

    def __getitem__(self, draw: Draw | int) -> Sample:
        """The features of a row, float32."""
        index, epoch, position = draw if isinstance(draw, Draw) else (int(draw), 0, int(draw))
        views = self.records[index].source
        assert isinstance(views, np.ndarray)
        if len(views) == 0:
            raise InputError(f"image {self.records[index].title} has no features in the cache: it could not be read")
        rng = np.random.default_rng((self.seed, epoch, position)) if len(views) > 1 else None
        view = views[0 if rng is None else rng.integers(len(views))]
        return torch.from_numpy(view).float(), int(self.labels[index]), index


class Remaining(BatchSampler):
    """The images whose features of one view are still missing."""

    def __init__(self, images: list[int], view: int) -> None:
        super().__init__()
        self.images, self.view = images, view

    def __iter__(self) -> Iterator[list[Draw]]:
        # An image is its own position: a view does not depend on which images were computed before.
        for images in chunks(self.images, BATCH):
            yield [Draw(image, self.view, image) for image in images]

    def __len__(self) -> int:
        return -(-len(self.images) // BATCH)


def use_features(
    config: TrainConfig, embedder: Embedder, data: Data, processes: Processes
) -> tuple[FromFeatures, Data]:
    """The model and the data of a run with a cache; what the cache lacks is computed now, shared by the processes."""
    if not config.cache_views:
        data = data._replace(train=data.train.transformed(CentreCrop(embedder.backbone.preprocessing)))
    views = (max(config.cache_views, 1), 1)
    sets = cached(config, embedder.backbone, data, views, processes)
    return FromFeatures(embedder.backbone, embedder.pooling, embedder.normalize), Data(*sets)


def cached(
    config: TrainConfig, backbone: Backbone, parts: Sequence[Dataset], views: Sequence[int], processes: Processes
) -> list[FeatureSet]:
    """The features of some datasets with a transform, each with so many views; what is missing is computed."""
    assert config.cache is not None
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        raise InputError(f"freeze all leaves parts of {config.backbone} trainable: it cannot be used with a cache")
    cache = Path(config.cache)
    described = describe_backbone(backbone), feature_shape(backbone, processes.device), config.cache_dtype
    stores = [create_store(cache, part, count, *described) for part, count in zip(parts, views, strict=True)]
    with one_run_at_a_time(cache) if processes.writes else nullcontext():
        if processes.writes:
            make_room(cache, stores, config.cache_gb)
            for store in stores:
                store.reserve()
        _wait()
        if anyone(not all(store.folder.is_dir() for store in stores), processes.device):
            raise InputError(f"not every process sees {cache}: a cache needs a shared folder")
        for store, part in zip(stores, parts, strict=True):
            fill(store, part, backbone, config, processes)
    return [feature_set(part, store, config.seed) for part, store in zip(parts, stores, strict=True)]


@contextmanager
def one_run_at_a_time(cache: Path) -> Iterator[None]:
    """Runs side by side that share a cache take turns, so that the second finds what the first has computed."""
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        yield


def describe_backbone(backbone: Backbone) -> str:
    """A digest of weights, settings and preprocessing."""
    config = {**backbone_config(backbone), "preprocessing": asdict(backbone.preprocessing)}
    for training in ("freeze", "freeze_batchnorm", "checkpointing"):
        config.pop(training, None)
    return fingerprint(config, backbone.state_dict())


@torch.no_grad()
def feature_shape(backbone: Backbone, device: torch.device) -> tuple[int, ...]:
    """Shape of one image's local features."""
    channels, side = len(backbone.preprocessing.mean), backbone.preprocessing.size
    return tuple(backbone.eval()(torch.zeros(1, channels, side, side, device=device)).shape[1:])


def create_store(
    cache: Path, dataset: Dataset, views: int, backbone: str, shape: tuple[int, ...], dtype: str
) -> FeatureStore:
    """The entry of a dataset with a transform; images are known by their names, and their contents by stamps."""
    names = [f"{record.title} {record.box if dataset.crop_boxes else ''}" for record in dataset.records]
    about: dict[str, Any] = {
        "dataset": dataset.name,
        "images": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "backbone": backbone,
        "transform": [type(dataset.transform).__name__, repr(vars(dataset.transform))],
        "seed": dataset.seed,
    }
    return FeatureStore(cache, about, [stamp(record.source) for record in dataset.records], views, shape, dtype)


@torch.no_grad()
def fill(store: FeatureStore, dataset: Dataset, backbone: Backbone, config: TrainConfig, processes: Processes) -> None:
    """Compute what is missing, this process its share of it."""
    missing = store.missing()
    _wait()  # nobody writes before everybody has seen what is missing
    backbone.eval()
    for view in range(missing.shape[1]):
        images = np.array_split(missing[:, view].nonzero()[0], processes.count)[processes.rank].tolist()
        loader = Loader(dataset, Remaining(images, view), config.workers, bad=config.bad_images)
        for batch in counted(loader, len(loader), f"features of {dataset.name}, view {view + 1}") if images else ():
            features = backbone(batch.images.to(processes.device))
            store.write(batch.indices.numpy(), view, features.float().cpu().numpy())
    _wait()


def feature_set(dataset: Dataset, store: FeatureStore, seed: int) -> FeatureSet:
    """The dataset with features for images; none for an image that could not be read."""
    features, incomplete = store.features(), store.missing().max(1)
    records = [
        record._replace(source=features[row, :0] if incomplete[row] else features[row], name=record.title)
        for row, record in enumerate(dataset.records)
    ]
    found = FeatureSet(dataset.name, records, dataset.class_names, dataset.preprocessing)
    found.transform, found.seed = dataset.transform, seed  # applied already, and what now chooses the view
    return found


def _wait() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
