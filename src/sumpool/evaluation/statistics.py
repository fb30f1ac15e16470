r"""Means with valid intervals, and comparisons, when many scores come from few trainings.

Scores have shape (R_1, …, R_F, Q): collection (i_1, …, i_F) takes repeat i_f of the training of fold f and has one
score per query. The collections share trainings, so their standard deviation (the published ±) is no confidence interval.
Here trainings and queries, or whole classes of queries, are resampled:

.. math::  \bar s \pm t_\nu \sqrt{V_{trainings} + V_{queries} - V_{both}}

with one variance per unit that was drawn at random; docs/math/statistics.md derives it and gives the measured coverage.
An axis of length 1 adds nothing: its variance cannot be estimated, and the interval holds for that one training only.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sumpool.errors import InputError
from sumpool.evaluation.student import critical, two_sided

Array = NDArray[np.float64]
CHUNK = 1 << 22  # numbers of resampling weights held at once: 32 MB


class Estimate(NamedTuple):
    """A mean score with its interval."""

    mean: float
    low: float
    high: float
    std: float
    """Population standard deviation of the collections' means, as published; it is no confidence interval."""
    repeats: int = 1
    """Fewest trainings of a fold; at 1 the interval reflects the queries only."""

    def json(self) -> dict[str, object]:
        """The form in which results are stored."""
        return {"mean": self.mean, "ci95": [self.low, self.high]}


class Comparison(NamedTuple):
    """Method a against method b on the same queries."""

    difference: Estimate
    """Of a − b: positive when a scores higher."""
    p: float
    """Two-sided; below 1 − level exactly when the interval of the difference excludes 0."""
    effect: float
    """Cohen's d_z: the difference in standard deviations of the paired differences between classes (or queries)."""


class _Method(NamedTuple):
    """Scores of K units (classes or queries) split into trainings."""

    means: Array
    """(R_1, …, R_F) score of each collection."""
    units: Array
    """(K,) contribution of each unit, averaged over collections; its mean is the method's score."""
    effects: list[Array]
    """Per fold (R_f, K): what choosing this repeat changes for each unit."""


def collections(single: ArrayLike) -> Array:
    """Scores (R, …, R, Q) of all collections of one repeat per fold, as means of the single models' (F, R, Q).

    >>> collections([[[0.0], [1.0]], [[0.0], [0.5]]])[..., 0]
    array([[0.  , 0.25],
           [0.5 , 0.75]])
    """
    scores = np.asarray(single, np.float64)
    if scores.ndim != 3 or scores.size == 0:
        raise InputError(f"collections expects scores (folds, repeats, queries), got shape {scores.shape}")
    folds, repeats, queries = scores.shape
    shapes = [[repeats if axis == fold else 1 for axis in range(folds)] + [queries] for fold in range(folds)]
    return np.asarray(sum(s.reshape(shape) for s, shape in zip(scores, shapes, strict=True)) / folds)


def estimate(
    scores: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean of `scores` (R_1, …, R_F, Q) with an interval for new trainings and new queries.

    `clusters` (Q,) names the class of each query: whole classes are resampled. Queries without score (NaN) are dropped.

    >>> estimate([[0.2, 0.6, 0.5, 0.7], [0.4, 0.6, 0.5, 0.9]]).mean
    0.55
    """
    (method,) = _methods([scores], clusters)
    return _infer(method.means, method.units, method.effects, level, resamples, seed)[0]


def compare(
    a: ArrayLike,
    b: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """a − b for scores (R_1, …, R_F, Q) on the same queries in the same order; trainings of a and b are independent."""
    first, second = _methods([a, b], clusters)
    means = np.subtract.outer(first.means, second.means)
    units = first.units - second.units
    effects = first.effects + [-effect for effect in second.effects]
    difference, p = _infer(means, units, effects, level, resamples, seed)
    spread = float(np.std(units, ddof=1)) if len(units) > 1 else 0.0
    effect = (
        difference.mean / spread if spread > 0 else np.copysign(np.inf, difference.mean) if difference.mean else 0.0
    )
    return Comparison(difference, p, float(effect))


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment: rejecting where it is ≤ α keeps the chance of any false rejection below α.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"holm expects a list of p-values in [0, 1], got {p}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


def _methods(all_scores: list[ArrayLike], clusters: ArrayLike | None) -> list[_Method]:
    """Check the input, drop queries without score in any method, and split each method's scores."""
    arrays = [np.asarray(scores, np.float64) for scores in all_scores]
    queries = arrays[0].shape[-1] if arrays[0].ndim else 0
    labels = np.arange(queries) if clusters is None else np.asarray(clusters)
    for scores in arrays:
        if scores.ndim < 2 or scores.size == 0 or scores.shape[-1] != queries or labels.shape != (queries,):
            shapes = ", ".join(str(s.shape) for s in arrays)
            raise InputError(
                f"statistics expect scores (repeats per fold…, queries) and one cluster per query, the same queries "
                f"for both methods, got scores {shapes} and clusters {labels.shape}"
            )
    scored = np.all([np.isfinite(s).all(axis=tuple(range(s.ndim - 1))) for s in arrays], axis=0)
    if not scored.any():
        raise InputError(f"statistics expect at least one query with a score, got none among {queries}: all are NaN")
    return [_split(_contributions(scores[..., scored], labels[scored])) for scores in arrays]


def _contributions(scores: Array, labels: NDArray[np.generic]) -> Array:
    """(…, Q) → (…, K) per cluster, with the same means: the class means if classes have equal size.

    The score weighs queries, not classes, so it is a ratio of sums over classes; this is its linearisation.
    """
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(scores[..., np.argsort(inverse, kind="stable")], starts, axis=-1)
    mean = scores.mean()
    return np.asarray(mean + (sums - mean * sizes) * (len(sizes) / len(labels)))


def _split(units: Array) -> _Method:
    """Collections' means, units' means and main effects of each fold's trainings (Hájek projection)."""
    folds = tuple(range(units.ndim - 1))
    common = units.mean(axis=folds)
    effects = [units.mean(axis=rest) - common for rest in reversed(list(combinations(folds, len(folds) - 1)))]
    return _Method(units.mean(axis=-1), common, effects)


def _infer(
    means: Array, units: Array, effects: list[Array], level: float, resamples: int, seed: int
) -> tuple[Estimate, float]:
    """Interval and p-value of the mean being 0."""
    if not 0 < level < 1 or resamples < 2:
        raise InputError(f"statistics expect 0 < level < 1 and at least 2 resamples, got {level} and {resamples}")
    if len(units) == 1 and all(len(effect) == 1 for effect in effects):
        raise InputError("statistics expect more than one training, query or class, got one of each: nothing varies")
    mean, repeats = float(means.mean()), min(len(effect) for effect in effects)
    variance, df = _variance(units, effects, resamples, np.random.default_rng(seed))
    half = critical(level, df) * variance**0.5
    p = two_sided(mean / variance**0.5, df) if variance > 0 else float(mean == 0)
    return Estimate(mean, mean - half, mean + half, float(means.std()), repeats), p


def _variance(units: Array, effects: list[Array], resamples: int, rng: np.random.Generator) -> tuple[float, float]:
    """Variance of the mean and its degrees of freedom (Welch–Satterthwaite)."""
    chunk = max(1, CHUNK // len(units))
    sizes = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    draws = np.concatenate([_draws(units, effects, size, rng) for size in sizes], axis=1)
    queries, both, *trainings = np.square(draws).mean(axis=1)
    parts = np.array([queries, *trainings])
    freedoms = np.array([len(units) - 1, *(len(effect) - 1 for effect in effects)])
    varying = freedoms > 0
    parts, freedoms = parts[varying], freedoms[varying]
    variance = max(parts.sum() - both, queries, sum(trainings))
    if variance == 0:
        return 0.0, 1.0
    df = variance**2 / np.sum(parts**2 / freedoms)
    return float(variance), float(np.clip(df, freedoms.min(), freedoms.sum()))


def _draws(units: Array, effects: list[Array], count: int, rng: np.random.Generator) -> Array:
    """(2 + F, count) deviations of the mean when queries, both, or one fold's trainings are resampled."""
    weights = _weights(len(units), count, rng)
    repeats = [_weights(len(effect), count, rng) for effect in effects]
    both = sum(np.sum(w * (weights @ effect.T), axis=1) for w, effect in zip(repeats, effects, strict=True))
    return np.stack(
        [weights @ units, both, *(w @ effect.mean(axis=1) for w, effect in zip(repeats, effects, strict=True))]
    )


def _weights(n: int, count: int, rng: np.random.Generator) -> Array:
    """(count, n) what drawing n of n with replacement changes in the mean's weights, scaled to be unbiased.

    A resample's variance is (n−1)/n of the estimator's: a third less at n = 3. The factor √(n/(n−1)) undoes this.
    """
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=count)
    return np.asarray((drawn - 1) / np.sqrt(n * max(n - 1, 1)))
