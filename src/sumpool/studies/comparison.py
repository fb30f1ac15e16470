"""From the trainings of a study to its numbers: means over seeds with intervals, and differences between methods."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sumpool.data.record import Array
from sumpool.evaluation.statistics import compare, estimate
from sumpool.evaluation.trial import Embedded
from sumpool.retrieval.comparison import Distance
from sumpool.training.loop import METRICS

Runs = Mapping[str, Sequence[Embedded]]


def per_query(
    runs: Sequence[Embedded], metrics: tuple[str, ...] = METRICS, distance: Distance = "cosine"
) -> dict[str, Array]:
    """Metric → (R,Q) scores of the test queries, one row per seed."""
    found = [run.metrics(metrics, distance).per_query for run in runs]
    return {metric: np.stack([scores[metric].numpy() for scores in found]) for metric in metrics}


def summarise(
    runs: Runs, baseline: str, candidate: str, metrics: tuple[str, ...] = METRICS, distance: Distance = "cosine"
) -> dict[str, Any]:
    """Results of methods by name, and candidate − baseline; the intervals are over seeds and test classes."""
    first = next(iter(runs.values()))[0]
    classes = first.labels[first.query].numpy()
    scores = {name: per_query(some, metrics, distance) for name, some in runs.items()}
    means = {name: {m: estimate(values[m], classes).json() for m in metrics} for name, values in scores.items()}
    pair = scores[candidate], scores[baseline]
    differences = {m: compare(pair[0][m], pair[1][m], classes).difference.json() for m in metrics}
    return {**means, "difference": differences}


def shown(value: Mapping[str, Any], digits: int = 1) -> str:
    """A mean with its interval, in points, for a table.

    >>> shown({"mean": 0.25, "ci95": [0.2, 0.31]})
    '25.0 [20.0, 31.0]'
    """
    low, high = value["ci95"]
    return f"{100 * value['mean']:.{digits}f} [{100 * low:.{digits}f}, {100 * high:.{digits}f}]"
