"""Training on sets of token ids: no transform, no projection, embeddings compared by their distance."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sumpool.errors import InputError
from sumpool.retrieval import retrieval_metrics
from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.evaluate import embed_dataset
from sumpool.training.loop import Training
from sumpool.training.start import start

CONFIG = TrainConfig(
    "tokens",
    data_settings={"per_class": 4},
    backbone="tokens",
    pooling="gap",
    dim=None,
    normalize="none",
    distance="euclidean",
    loss="proxy_nca",
    classes_per_batch=4,
    images_per_class=2,
    steps=2,
    validate_every=2,
    device="cpu",
)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return start(tmp_path / "run", CONFIG)


def test_without_a_projection_the_loss_is_as_long_as_the_features(training: Training) -> None:
    assert training.embedder.pooling.projection is None
    assert training.objective.proxies is not None
    assert training.objective.proxies.vectors.shape == (16, 1, 2)
    assert "dim: null" in to_yaml(CONFIG)


def test_ids_reach_the_model_as_they_are_despite_the_transforms(training: Training) -> None:
    batch = next(iter(training.loader))
    assert batch.images.shape == (8, 50)
    assert batch.images.dtype == torch.int64


def test_validation_ranks_by_the_distance_of_the_configuration(training: Training) -> None:
    training.fit()
    vectors, rows = embed_dataset(training.embedder, training.data.validation)
    labels = training.data.validation.labels[rows]
    scores = {name: retrieval_metrics(vectors, labels, distance=name)["map@r"] for name in ("euclidean", "cosine")}
    assert training.best_score == scores["euclidean"] != scores["cosine"]


def test_an_impossible_length() -> None:
    with pytest.raises(InputError, match="dim must be at least 1, got 0"):
        replace(CONFIG, dim=0)
