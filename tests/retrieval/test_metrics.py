"""Retrieval metrics against a double loop, pytorch-metric-learning and hand-worked values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval import counting, metrics, nearest, retrieval_metrics
from sumpool.retrieval.comparison import Comparison

from .conftest import ALL, metrics_by_loop, random_embeddings, ranking_by_loop, scores_by_loop

DISTANCES = ["cosine", "euclidean"]


@pytest.mark.parametrize("few", [0, 12, 10**6], ids=["neighbours", "default", "counting"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_every_path_equals_the_double_loop(
    case: tuple[Tensor, list[int]], distance: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FEW", few)
    embeddings, labels = case
    expected = metrics_by_loop(
        ranking_by_loop(scores_by_loop(embeddings, embeddings, distance), own=True), labels, labels
    )
    result = retrieval_metrics(embeddings, labels, metrics=ALL, distance=distance)
    assert dict(result) == pytest.approx(expected, abs=1e-12)
