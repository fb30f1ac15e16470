"""Coverage of the intervals and false-positive rate of the comparisons, on simulated scores with known truth.

A rate of .95 or .05 in 1000 simulations has a standard error of .007: the bounds .93 and .07 are three of them away. On
the other side the intervals may be too wide, by how much the tables in docs/math/statistics.md say.
`python tests/evaluation/test_statistics_coverage.py 4000` prints the tables of docs/math/statistics.md (4 minutes).
"""

import sys
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sumpool.evaluation.statistics import collections, compare, estimate, holm

Array = NDArray[np.float64]
RESAMPLES = 300
SIZES = np.array([1, 2, 3, 4])  # queries per class, in turn


class World(NamedTuple):
    """Standard deviations of a latent score: of trainings, classes, class × training, queries, query × training."""

    training: float = 0.15
    classes: float = 1.0
    interaction: float = 0.4
    queries: float = 1.0
    noise: float = 0.5
    method: float = 0.3
    """Of class × method, for comparisons."""
    uneven: float = 1.0
    """How many times as much the trainings of the first fold vary."""
    score: str = "precision"
    folds: int = 4
    repeats: int = 3
    count: int = 40
    """Number of classes."""

    def clusters(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.count), np.resize(SIZES, self.count))

    def shared(self, rng: np.random.Generator) -> Array:
        """(Q,) what all methods have in common: easy and hard classes and queries."""
        labels = self.clusters()
        draw = rng.exponential(size=self.count) - 1 if self.score == "skewed" else rng.standard_normal(self.count)
        return self.classes * draw[labels] + self.queries * rng.standard_normal(len(labels))

    def scores(self, shared: Array, rng: np.random.Generator, method: float = 0.0) -> Array:
        """(R, …, R, Q) scores of the collections of one method."""
        labels, shape = self.clusters(), (self.folds, self.repeats)
        own = method * rng.standard_normal(self.count) + self.interaction * rng.standard_normal((*shape, self.count))
        training = self.training * rng.standard_normal((*shape, 1))
        training[0] *= self.uneven
        latent = shared + own[..., labels] + training
        latent += self.noise * rng.standard_normal(latent.shape)
        if self.score == "ensemble":
            return precision(2 * collections(latent))
        return collections(precision(latent) if self.score == "precision" else latent)

    def truth(self) -> float:
        """Expected score: every effect of a random query of a random class is a sum of independent normal numbers."""
        if self.score in ("linear", "skewed"):
            return 0.0
        rng = np.random.default_rng(0)
        own = np.hypot(self.training, np.hypot(self.interaction, self.noise)) * rng.standard_normal((self.folds, 10**6))
        latent = np.hypot(self.classes, self.queries) * rng.standard_normal(10**6) + own
        return float(precision(2 * latent.mean(axis=0) if self.score == "ensemble" else latent).mean())


def precision(latent: Array) -> Array:
    """Skewed scores in [0, 1] with steps of a tenth, like the precision among 10 neighbours."""
    return np.round(10 / (1 + np.exp(-1.5 - latent))) / 10


EVERYDAY = {
    f"{score}, F={folds}, r={repeats}": World(score=score, folds=folds, repeats=repeats)
    for score, folds, counts in [("precision", 1, (2, 3, 5)), ("precision", 4, (2, 3, 5)), ("ensemble", 4, (2, 3))]
    for repeats in counts
}
# One source of variation each, or two of equal size, or few classes: where an approximation shows its limits.
ALONE = {"classes": 0.0, "interaction": 0.0, "queries": 0.0, "noise": 0.0, "score": "linear"}
EXTREME = {
    **{f"only trainings, F={f}, r={r}": World(**ALONE, folds=f, repeats=r) for f in (1, 4) for r in (2, 3)},
    **{
        f"trainings = classes, F={f}, r={r}": World(
            **{**ALONE, "classes": 1.0, "training": (f * r / 40) ** 0.5}, folds=f, repeats=r
        )
        for f in (1, 4)
        for r in (2, 3)
    },
    **{f"only trainings of one fold, F=4, r={r}": World(**ALONE, uneven=10, repeats=r) for r in (2, 3)},
    "only class × training, F=4, r=3": World(**{**ALONE, "interaction": 1.0, "training": 0.0}),
    "exponential classes, 40": World(score="skewed", queries=0.0),
    "exponential classes, 100": World(score="skewed", queries=0.0, count=100),
    **{f"precision, {count} classes, F={f}, r=3": World(folds=f, count=count) for count in (10, 20) for f in (1, 4)},
}


def coverage(world: World, simulations: int, clustered: bool = True) -> dict[str, float]:
    """How often each interval holds the truth, over fresh trainings, classes and queries."""
    rng, truth, labels = np.random.default_rng(1), world.truth(), world.clusters() if clustered else None
    hits = {"ours": 0, "± 1.96 std": 0, "± 1.96 std/√n": 0}
    for seed in range(simulations):
        scores = world.scores(world.shared(rng), rng)
        mean, low, high, std, _ = estimate(scores, labels, resamples=RESAMPLES, seed=seed)
        hits["ours"] += low <= truth <= high
        hits["± 1.96 std"] += abs(mean - truth) <= 1.96 * std
        hits["± 1.96 std/√n"] += abs(mean - truth) <= 1.96 * std / scores[..., 0].size ** 0.5
    return {name: count / simulations for name, count in hits.items()}


def false_positives(world: World, simulations: int, methods: int = 1) -> dict[str, float]:
    """How often at least one of some methods that equal a baseline is called different from it at .05."""
    rng, labels = np.random.default_rng(2), world.clusters()
    found = {"ours": 0, "ours, Holm": 0, "z of collections": 0}
    for seed in range(simulations):
        shared = world.shared(rng)
        baseline, *others = (world.scores(shared, rng, world.method) for _ in range(methods + 1))
        p = [compare(other, baseline, labels, resamples=RESAMPLES, seed=seed).p for other in others]
        found["ours"] += min(p) < 0.05
        found["ours, Holm"] += bool((holm(p) < 0.05).any())
        found["z of collections"] += any(abs(z_of_collections(other, baseline)) > 1.96 for other in others)
    return {name: count / simulations for name, count in found.items()}


def z_of_collections(a: Array, b: Array) -> float:
    """The mistake: all collections taken for independent measurements."""
    first, second = a.mean(axis=-1).ravel(), b.mean(axis=-1).ravel()
    return float((first.mean() - second.mean()) / np.sqrt(first.var() / first.size + second.var() / second.size))


@pytest.mark.slow
@pytest.mark.parametrize("world", EVERYDAY.values(), ids=EVERYDAY)
def test_intervals_hold_the_truth_95_times_in_100(world: World) -> None:
    rates = coverage(world, 1000)
    assert 0.93 <= rates["ours"] <= 0.98
    assert rates["± 1.96 std/√n"] < 0.7


@pytest.mark.slow
def test_single_queries_of_a_class_are_no_independent_sample() -> None:
    assert coverage(World(), 1000, clustered=False)["ours"] < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("world", EXTREME.values(), ids=EXTREME)
def test_intervals_hold_the_truth_where_one_source_dominates(world: World) -> None:
    """Here the approximations show: docs/math/statistics.md says which falls short of .95 (down to .915) and why."""
    assert 0.89 <= coverage(world, 1000)["ours"] <= 0.995


@pytest.mark.slow
@pytest.mark.parametrize("world", EVERYDAY.values(), ids=EVERYDAY)
def test_equal_methods_differ_5_times_in_100(world: World) -> None:
    rates = false_positives(world, 1000)
    assert 0.01 <= rates["ours"] <= 0.07
    assert rates["z of collections"] > 0.15


@pytest.mark.slow
def test_holm_keeps_the_chance_of_any_false_positive_among_five() -> None:
    rates = false_positives(World(), 1000, methods=5)
    assert rates["ours, Holm"] <= 0.07
    assert rates["ours"] > 0.1


def main(simulations: int) -> None:
    for name, world in {**EVERYDAY, **EXTREME}.items():
        print(
            f"| {name} |", " | ".join(f"{rate:.3f}" for rate in coverage(world, simulations).values()), "|", flush=True
        )
    for name, world in EVERYDAY.items():
        rates = false_positives(world, simulations)
        print(f"| {name} | {rates['ours']:.3f} | {rates['z of collections']:.3f} |", flush=True)
    print("single queries resampled:", coverage(World(), simulations, clustered=False))
    print("five methods equal to the baseline:", false_positives(World(), simulations, methods=5))


if __name__ == "__main__":
    main(int(sys.argv[1]))
