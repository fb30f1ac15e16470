r"""Variance of a mean over trainings and queries that were both drawn at random, by resampling both.

Every unit k (a class or a single query) is scored by every collection (i_1, …, i_F) of one training per fold. The
scores are split into main effects (Hájek projection),

.. math:: y_{i_1 \dots i_F k} \approx c_k + e_{1 i_1 k} + \dots + e_{F i_F k}.

The mean of c varies with the units drawn, the mean of e_f over k with the trainings drawn. Both contain what is
particular to a training *and* a unit; resampling the two together measures that part, which is then subtracted once.
Derivation: docs/math/statistics.md.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHUNK = 1 << 22  # numbers of resampling weights held at once: 32 MB


class Effects(NamedTuple):
    """A method's scores, or the difference of two methods', split by what was drawn at random."""

    units: Array
    """(K,) contribution of each unit, averaged over collections; the mean of these is the score."""
    trainings: list[Array]
    """Per fold (R_f, K): what the choice of a repeat changes in each unit."""


def split(scores: Array, labels: NDArray[np.generic]) -> Effects:
    """Effects of scores (R_1, …, R_F, Q) whose queries carry the labels (Q,) of their units."""
    values = _contributions(scores, labels)
    folds = range(values.ndim - 1)
    units = values.mean(axis=tuple(folds))
    others = [tuple(other for other in folds if other != fold) for fold in folds]
    return Effects(units, [values.mean(axis=axes) - units for axes in others])


def variance(effects: Effects, resamples: int, seed: int) -> tuple[float, float]:
    """Variance of the mean score and its degrees of freedom (Welch–Satterthwaite).

    The scores of two units by two trainings below differ by 2 between units and by 4 between trainings:

    >>> value, df = variance(split(np.array([[0.0, 2.0], [4.0, 6.0]]), np.arange(2)), 20000, 0)
    >>> round(value, 1), round(df, 1)  # 2²/4 + 4²/4 and (1 + 4)² / (1² + 4²)
    (5.0, 1.5)
    """
    rng = np.random.default_rng(seed)
    chunk = max(1, CHUNK // len(effects.units))
    draws = [_draws(effects, min(chunk, resamples - start), rng) for start in range(0, resamples, chunk)]
    both, *parts = np.square(np.concatenate(draws, axis=1)).mean(axis=1).tolist()
    # The true variance is at least that of the units and that of the trainings; the difference of estimates may not be.
    total = max(sum(parts) - both, parts[0], sum(parts[1:]))
    freedoms = [len(effects.units) - 1, *(len(training) - 1 for training in effects.trainings)]
    return total, _freedom([part / total for part in parts], freedoms) if total > 0 else 1.0


def _freedom(shares: list[float], freedoms: list[int]) -> float:
    """Degrees of freedom ν of a sum of variances: 1/ν = Σ share² / ν_part, not outside what the parts allow."""
    varying = [(share, freedom) for share, freedom in zip(shares, freedoms, strict=True) if freedom > 0]
    inverse = sum(share**2 / freedom for share, freedom in varying)
    return min(max(1 / inverse, min(freedom for _, freedom in varying)), sum(freedoms))


def _contributions(scores: Array, labels: NDArray[np.generic]) -> Array:
    """(…, Q) → (…, K) per unit, with the same means: the units' means if all have as many queries.

    The score weighs queries, not units, so it is a ratio of two sums over units; this is its linearisation.
    """
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.add.reduceat(scores[..., np.argsort(inverse, kind="stable")], np.cumsum(sizes) - sizes, axis=-1)
    mean = scores.mean()
    return np.asarray(mean + (sums - mean * sizes) * (len(sizes) / len(labels)))


def _draws(effects: Effects, count: int, rng: np.random.Generator) -> Array:
    """(2 + F, count) changes of the mean: by trainings and units together, by units, by the trainings of each fold."""
    units = _weights(len(effects.units), count, rng)
    repeats = [_weights(len(training), count, rng) for training in effects.trainings]
    pairs = list(zip(repeats, effects.trainings, strict=True))
    both = sum(np.sum(w * (units @ training.T), axis=1) for w, training in pairs)
    centred = effects.units - effects.units.mean()  # weights sum to 0 only up to rounding
    return np.stack([both, units @ centred, *(w @ training.mean(axis=1) for w, training in pairs)])


def _weights(n: int, count: int, rng: np.random.Generator) -> Array:
    """(count, n) what drawing n of n with replacement changes in the weights of a mean, scaled to be unbiased.

    Resampled means have (n − 1)/n of the mean's variance, a third too little at n = 3; √(n/(n−1)) undoes this.
    """
    drawn = rng.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
    times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n)
    return np.asarray((times - 1) / np.sqrt(n * max(n - 1, 1)))
