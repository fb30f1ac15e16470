"""One training of a comparison: trained to the end, and its test images embedded, whatever happened before.

test.safetensors in the run folder holds the test embeddings: single scores, ensembles and examples come from them.
While settings are tuned, the part that the model was selected on takes the place of the test images.
"""

from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sumpool.data import CentreCrop, Dataset, load_dataset
from sumpool.embedder import Embedder
from sumpool.retrieval import Metrics, retrieval_metrics
from sumpool.retrieval.comparison import Distance
from sumpool.training.config import TrainConfig
from sumpool.training.evaluate import embed_dataset
from sumpool.training.features import FromFeatures, cached
from sumpool.training.loop import METRICS
from sumpool.training.processes import Processes
from sumpool.training.run import BEST, CONFIG
from sumpool.training.setup import split
from sumpool.training.start import start

Part: TypeAlias = Literal["test", "validation"]
TEST = "test.safetensors"


class Embedded(NamedTuple):
    """The embeddings (N,D) of the test images, their labels, and which of them are queries and gallery."""

    vectors: Tensor
    labels: Tensor
    query: Tensor
    gallery: Tensor

    def metrics(self, names: tuple[str, ...] = METRICS, distance: Distance = "cosine") -> Metrics:
        """Retrieval scores of the queries."""
        if bool(self.query.all()):
            return retrieval_metrics(self.vectors, self.labels, metrics=names, distance=distance)
        queries, gallery = (part[self.query] for part in self[:2]), (part[self.gallery] for part in self[:2])
        return retrieval_metrics(*queries, *gallery, metrics=names, distance=distance)


def run_trial(config: TrainConfig, folder: Path, part: Part = "test") -> Embedded:
    """Train in the folder, continue what was begun there, or take what is complete; then embed the images of a part.

    A request to stop ends the training with its state saved and raises KeyboardInterrupt, so that nothing follows.
    """
    if not (folder / f"{part}.safetensors").exists():
        training = start(folder, config, resume=(folder / CONFIG).exists())
        training.fit()
        if training.interrupted:
            raise KeyboardInterrupt
        save_embedded(embed_part(config, folder, training.processes, part), folder, part)
    return load_embedded(folder, part)


def embed_part(config: TrainConfig, folder: Path, processes: Processes, part: Part = "test") -> Embedded:
    """The images of a part through the best model of a run."""
    embedder = Embedder.load(folder / BEST).requires_grad_(False).to(processes.device)
    images = prepared_test(config, embedder, part)
    if config.cache is not None:
        (images,) = cached(config, embedder.backbone, [images], [1], processes)
        embedder = FromFeatures(embedder.backbone, embedder.pooling, embedder.normalize)
    vectors, rows = embed_dataset(embedder, images, workers=config.readers, bad=config.bad_images)
    roles = [images.records[int(row)].role for row in rows]
    query = torch.tensor([role != "gallery" for role in roles])
    gallery = torch.tensor([role != "query" for role in roles])
    return Embedded(vectors, images.labels[rows], query, gallery)


def prepared_test(config: TrainConfig, embedder: Embedder, part: Part = "test") -> Dataset:
    """The test part of a run's dataset, or the part it was validated on, as its model sees it."""
    dataset = load_dataset(config.dataset, config.data_root, **config.data_settings)
    images = dataset.split("test") if part == "test" else split(dataset, config)[1]
    return images.transformed(CentreCrop(embedder.backbone.preprocessing))


def save_embedded(embedded: Embedded, folder: Path, part: Part = "test") -> None:
    """Write the file; it appears complete or not at all."""
    unfinished = folder / f"{part}.safetensors.part"
    save_file({name: part.cpu().contiguous() for name, part in embedded._asdict().items()}, unfinished)
    unfinished.replace(folder / f"{part}.safetensors")


def load_embedded(folder: Path, part: Part = "test") -> Embedded:
    """The embeddings that `run_trial` left in a run folder."""
    return Embedded(**load_file(folder / f"{part}.safetensors"))
