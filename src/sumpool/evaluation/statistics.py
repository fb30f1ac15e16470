r"""Means with valid intervals, and comparisons, where many scores come from few trainings.

Scores have shape (R_1, …, R_F, Q): collection (i_1, …, i_F) takes repeat i_f of the training on fold f and has one
score per query. Collections share trainings, so their standard deviation, the published ±, is no confidence interval.
Here trainings and queries (or whole classes of queries) are resampled, and the interval is

.. math:: \bar s \pm t_\nu \sqrt V, \qquad V = V_{trainings} + V_{queries} - V_{both}.

It is meant for new trainings on the same folds and new queries (classes) from the same population. Where there is only
one training per fold, or only one query (class), that part is unknown and left out. Derivation, measured coverage and
advice on clusters: docs/math/statistics.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sumpool.errors import InputError
from sumpool.evaluation.resampling import Array, Effects, split, variance
from sumpool.evaluation.student import critical, two_sided


class Estimate(NamedTuple):
    """A mean score with its interval."""

    mean: float
    low: float
    high: float
    std: float
    """Population standard deviation of the collections' means, as published; not a confidence interval."""
    repeats: int = 1
    """Fewest trainings of a fold; at 1 the interval reflects the queries only."""

    def json(self) -> dict[str, object]:
        """The form results are stored in, at the default level."""
        return {"mean": self.mean, "ci95": [self.low, self.high]}


class Comparison(NamedTuple):
    """Method a against method b on the same queries."""

    difference: Estimate
    """Of a − b, positive where a scores higher; its std is over all pairs of a collection of a and one of b."""
    p: float
    """Two-sided; below 1 − level exactly when the interval of the difference excludes 0."""
    effect: float
    """Cohen's d_z: the difference over the standard deviation of the paired differences of the classes (queries)."""


def collections(single: ArrayLike) -> Array:
    """Scores (R, …, R, Q) of all collections of one repeat per fold: means of the single models' scores (F, R, Q).

    >>> collections([[[0.0], [1.0]], [[0.0], [0.5]]])[..., 0]
    array([[0.  , 0.25],
           [0.5 , 0.75]])
    """
    scores = np.asarray(single, np.float64)
    if scores.ndim != 3 or scores.size == 0:
        raise InputError(f"collections expects scores of shape (folds, repeats, queries), got {scores.shape}")
    folds, repeats, queries = scores.shape
    total = np.zeros((*[repeats] * folds, queries))
    for fold in range(folds):
        total += np.expand_dims(scores[fold], tuple(axis for axis in range(folds) if axis != fold))
    return np.asarray(total / folds)


def estimate(
    scores: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean of `scores` (R_1, …, R_F, Q) with its interval; queries without a score (NaN) are dropped.

    `clusters` (Q,) are the classes of the queries: given, classes are resampled instead of single queries.

    >>> three_trainings = [[0.2, 0.6, 0.5, 0.7], [0.4, 0.6, 0.5, 0.9], [0.3, 0.6, 0.6, 0.7]]
    >>> mean, low, high, std, repeats = estimate(three_trainings)
    >>> print(f"{mean:.2f} in [{low:.1f}, {high:.1f}], published as ± {std:.2f}")
    0.55 in [0.3, 0.8], published as ± 0.04
    """
    (array,), labels = _scored([scores], clusters)
    return _infer(split(array, labels), _published(array), level, resamples, seed)[0]


def compare(
    a: ArrayLike,
    b: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Difference a − b of two methods' scores, as in `estimate`, on the same queries in the same order.

    Queries (classes) are paired and resampled together; the trainings of a and b are independent, in any number.

    >>> compare([[0.7, 0.6, 0.9, 0.7, 0.8]], [[0.5, 0.5, 0.8, 0.6, 0.5]]).p < 0.05
    True
    """
    arrays, labels = _scored([a, b], clusters)
    first, second = (split(array, labels) for array in arrays)
    effects = Effects(first.units - second.units, first.trainings + [-training for training in second.trainings])
    std = math.hypot(*(_published(array) for array in arrays))
    difference, p = _infer(effects, std, level, resamples, seed)
    return Comparison(difference, p, _standardised(effects.units))


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment: rejecting where it is ≤ α keeps the chance of any false rejection at most α.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"holm expects a list of p-values in [0, 1], got {p}")
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _scored(methods: list[ArrayLike], clusters: ArrayLike | None) -> tuple[list[Array], NDArray[np.generic]]:
    """Checked scores and labels of the queries that have a score in every method and collection."""
    arrays = [np.atleast_1d(np.asarray(scores, np.float64)) for scores in methods]
    labels = np.arange(arrays[0].shape[-1]) if clusters is None else np.asarray(clusters)
    if any(scores.ndim < 2 or 0 in scores.shape or scores.shape[-1:] != labels.shape for scores in arrays):
        shapes = " and ".join(str(scores.shape) for scores in arrays)
        raise InputError(
            "statistics expect scores of shape (repeats of each fold, queries), with the same queries for all methods "
            f"and one cluster label per query, got scores {shapes} and labels {labels.shape}"
        )
    known = np.all([~np.isnan(scores).any(axis=tuple(range(scores.ndim - 1))) for scores in arrays], axis=0)
    if not known.any():
        raise InputError("statistics expect a query with a score in every collection, got a NaN for each")
    return [scores[..., known] for scores in arrays], labels[known]


def _published(scores: Array) -> float:
    return float(scores.mean(axis=-1).std())


def _infer(effects: Effects, std: float, level: float, resamples: int, seed: int) -> tuple[Estimate, float]:
    """Estimate of the mean, and the p-value of that mean being 0."""
    if not 0 < level < 1 or resamples < 100:
        raise InputError(f"statistics expect 0 < level < 1 and resamples ≥ 100, got {level} and {resamples}")
    repeats = [len(training) for training in effects.trainings]
    if max(*repeats, len(effects.units)) == 1:
        raise InputError("statistics expect several trainings, queries or classes, got one of each, so nothing varies")
    mean, (squared, df) = float(effects.units.mean()), variance(effects, resamples, seed)
    half = critical(level, df) * math.sqrt(squared)
    p = two_sided(mean / math.sqrt(squared), df) if squared > 0 else float(mean == 0)
    return Estimate(mean, mean - half, mean + half, std, min(repeats)), p


def _standardised(units: Array) -> float:
    """Mean over standard deviation: NaN for one unit, infinite where units differ from 0 but not from each other."""
    if len(units) == 1:
        return math.nan
    mean, std = float(units.mean()), float(units.std(ddof=1))
    constant = std <= 1e-12 * abs(mean)  # but for rounding
    return mean / std if not constant else math.copysign(math.inf, mean) if mean else 0.0
