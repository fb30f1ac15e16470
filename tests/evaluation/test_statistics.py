"""Statistics against SciPy, closed forms, literal resampling and hand-worked values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sumpool.errors import InputError
from sumpool.evaluation import resampling
from sumpool.evaluation.resampling import split, variance
from sumpool.evaluation.statistics import Estimate, collections, compare, estimate, holm
from sumpool.evaluation.student import critical, two_sided

Array = NDArray[np.float64]
MANY = 40_000  # resamples: a standard error is then known to 1/√(2·MANY) = 0.35 %
CLOSE = 0.02


def crossed(seed: int = 0, shape: tuple[int, ...] = (3, 3, 24)) -> Array:
    """Scores with effects of the trainings of each axis, of the queries, and of both."""
    rng = np.random.default_rng(seed)
    scores = 0.1 * rng.standard_normal(shape) + 0.3 * rng.standard_normal(shape[-1])
    for axis, repeats in enumerate(shape[:-1]):
        effect = 0.1 * rng.standard_normal(repeats) + 0.1 * rng.standard_normal((shape[-1], repeats))
        scores += np.expand_dims(effect.T, tuple(other for other in range(len(shape) - 1) if other != axis))
    return scores


def half(result: Estimate) -> float:
    return (result.high - result.low) / 2


# ---- collections and the published numbers


def test_collections_are_means_of_one_repeat_per_fold() -> None:
    single = np.random.default_rng(0).random((4, 3, 5))
    scores = collections(single)
    assert scores.shape == (3, 3, 3, 3, 5)
    np.testing.assert_allclose(scores[2, 0, 1, 1], (single[0, 2] + single[1, 0] + single[2, 1] + single[3, 1]) / 4)


def test_mean_and_std_are_those_of_the_collections() -> None:
    result = estimate(collections([[[0.0, 0.4], [0.2, 0.6]], [[0.4, 0.4], [0.8, 0.8]]]))
    means = [0.3, 0.5, 0.4, 0.6]  # (0.2 + 0.4)/2, (0.2 + 0.8)/2, (0.4 + 0.4)/2, (0.4 + 0.8)/2
    assert (result.mean, result.std) == pytest.approx((np.mean(means), np.std(means)))
    assert result.repeats == 2
    assert result.json() == {"mean": result.mean, "ci95": [result.low, result.high]}


# ---- intervals and p-values against SciPy


@pytest.mark.parametrize("repeats", [2, 3, 10])
def test_equal_queries_give_students_interval_of_the_trainings(repeats: int) -> None:
    runs = np.random.default_rng(repeats).random(repeats)
    result = estimate(np.repeat(runs[:, None], 7, axis=1), resamples=MANY)
    low, high = stats.t.interval(0.95, repeats - 1, runs.mean(), stats.sem(runs))
    assert (result.low, result.high) == pytest.approx((low, high), abs=CLOSE * (high - low))


def test_one_training_gives_students_interval_of_the_queries() -> None:
    queries = np.random.default_rng(0).random(30)
    result = estimate(queries[None, None], level=0.9, resamples=MANY)
    low, high = stats.t.interval(0.9, 29, queries.mean(), stats.sem(queries))
    assert (result.low, result.high) == pytest.approx((low, high), abs=CLOSE * (high - low))
    assert result.repeats == 1


def test_one_training_each_gives_the_paired_t_test() -> None:
    a, b = np.random.default_rng(1).random((2, 25))
    result = compare([a], [b], resamples=MANY)
    expected = stats.ttest_rel(a, b)
    assert result.p == pytest.approx(expected.pvalue, rel=0.05)
    assert half(result.difference) == pytest.approx(np.diff(expected.confidence_interval())[0] / 2, rel=CLOSE)
    assert result.effect == pytest.approx((a - b).mean() / (a - b).std(ddof=1))


def test_equal_queries_give_welchs_test_of_the_trainings() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random(4), 3 * rng.random(6)
    result = compare(np.tile(a[:, None], 5), np.tile(b[:, None], 5), resamples=MANY)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert result.p == pytest.approx(expected.pvalue, rel=0.05)
    assert half(result.difference) == pytest.approx(np.diff(expected.confidence_interval())[0] / 2, rel=CLOSE)


@pytest.mark.parametrize("df", [0.7, 1, 2.5, 8, 98.3, 60_501])
def test_student_equals_scipy(df: float) -> None:
    for t in (0.0, 1e-3, 0.8, 2, 7, 40):
        assert two_sided(-t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-9)
    for level in (0.01, 0.5, 0.95, 0.9999):
        assert critical(level, df) == pytest.approx(stats.t.isf((1 - level) / 2, df), rel=1e-9)


# ---- the variance against its closed form and against resampling by loop


def closed_form(scores: Array) -> float:
    """The limit of infinitely many resamples, from the mean squares of the crossed layout."""
    folds, queries = range(scores.ndim - 1), scores.shape[-1]
    common = scores.mean(axis=tuple(folds))
    total = common.var(ddof=1) / queries
    for fold in folds:
        repeats = scores.shape[fold]
        effect = scores.mean(axis=tuple(other for other in folds if other != fold)) - common
        main = effect.mean(axis=1)
        total += main.var(ddof=1) / repeats
        total -= np.sum((effect - main[:, None]) ** 2) / ((repeats - 1) * (queries - 1) * repeats * queries)
    return float(total)


@pytest.mark.parametrize("shape", [(3, 24), (2, 5, 24), (3, 3, 3, 3, 10)])
def test_variance_equals_its_closed_form(shape: tuple[int, ...]) -> None:
    scores = crossed(shape=shape)
    value, _ = variance(split(scores, np.arange(shape[-1])), MANY, seed=0)
    assert value == pytest.approx(closed_form(scores), rel=2 * CLOSE)


def test_variance_never_falls_below_that_of_queries_or_trainings() -> None:
    """Scores that are nothing but interaction: its subtraction would leave less than the trainings alone vary."""
    scores = np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, 0.5]])
    queries_only = scores.mean(axis=0).var(ddof=1) / 3
    assert variance(split(scores, np.arange(3)), MANY, 0)[0] == pytest.approx(queries_only, rel=2 * CLOSE)
    assert closed_form(scores) < queries_only / 2


def test_classes_of_unequal_size_vary_as_when_drawn_by_loop() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(40), rng.integers(1, 8, 40))
    scores = rng.random(40)[labels] + 0.2 * rng.random(len(labels))
    members = [scores[labels == label] for label in range(40)]
    means = [np.concatenate([members[k] for k in rng.integers(40, size=40)]).mean() for _ in range(4000)]
    value, df = variance(split(scores[None], labels), MANY, 0)
    assert value == pytest.approx(np.var(means) * 40 / 39, rel=0.08)  # the loop's own error: √(2/4000) = 2 %
    assert df == 39


def test_trainings_of_all_folds_vary_as_when_drawn_by_loop() -> None:
    single = crossed(4, (4, 3, 6)).mean(axis=-1, keepdims=True)
    rng = np.random.default_rng(4)
    draws = rng.integers(3, size=(20_000, 4, 3))
    means = [np.mean([single[fold, draw[fold]] for fold in range(4)]) for draw in draws]
    value, df = variance(split(collections(single), np.arange(1)), MANY, 0)
    assert value == pytest.approx(np.var(means) * 3 / 2, rel=0.05)
    assert 2 <= df <= 8


def test_few_weights_at_a_time_give_the_same_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = split(crossed(), np.arange(24))
    at_once, _ = variance(effects, MANY, 0)
    monkeypatch.setattr(resampling, "CHUNK", 24 * 999)
    assert variance(effects, MANY, 0)[0] == pytest.approx(at_once, rel=2 * CLOSE)


# ---- what must not matter, and what must


def test_order_of_queries_repeats_and_folds_does_not_matter() -> None:
    scores, labels = crossed(shape=(2, 4, 24)), np.arange(24) % 8
    expected = estimate(scores, labels)
    order = np.random.default_rng(0).permutation(24)
    assert estimate(scores[..., order], labels[order]) == pytest.approx(expected)
    for other in (scores[:, ::-1], scores.swapaxes(0, 1)):
        result = estimate(other, labels)
        assert (result.mean, result.std) == pytest.approx((expected.mean, expected.std))
        assert half(result) == pytest.approx(half(expected), rel=0.1)


def test_exchanging_the_methods_flips_the_sign() -> None:
    a, b = crossed(1), crossed(2, (4, 24))
    forth, back = compare(a, b, resamples=MANY), compare(b, a, resamples=MANY)
    assert forth.difference.mean == pytest.approx(-back.difference.mean)
    assert forth.difference.mean == pytest.approx(a.mean() - b.mean())
    assert forth.effect == pytest.approx(-back.effect)
    assert forth.difference.std == pytest.approx(np.subtract.outer(a.mean(-1), b.mean(-1)).std())
    assert forth.p == pytest.approx(back.p, rel=0.1)


def test_every_query_a_cluster_is_no_clusters() -> None:
    assert estimate(crossed(), np.arange(24)) == estimate(crossed())


def test_clusters_widen_the_interval_when_classes_differ() -> None:
    labels = np.arange(60) // 10
    scores = np.random.default_rng(0).random((2, 60)) * 0.1 + np.linspace(0, 1, 6)[labels]
    assert half(estimate(scores, labels)) > 3 * half(estimate(scores))


def test_pairing_removes_what_queries_have_in_common() -> None:
    a, hard = crossed(1), 5 * np.random.default_rng(5).random(24)
    b = crossed(2)
    assert compare(a + hard, b + hard).difference == pytest.approx(compare(a, b).difference)


def test_queries_without_score_are_dropped_for_both() -> None:
    a, b, labels = crossed(1), crossed(2, (2, 24)), np.arange(24) % 6
    a[..., 3], b[..., 8] = np.nan, np.nan
    kept = np.delete(np.arange(24), [3, 8])
    assert compare(a, b, labels) == compare(a[..., kept], b[..., kept], labels[kept])
    assert estimate(b, labels) == estimate(np.delete(b, 8, -1), np.delete(labels, 8))


@given(seed=st.integers(0, 10**6), level=st.floats(0.5, 0.999), shift=st.floats(-0.5, 0.5))
@settings(max_examples=60, deadline=None)
def test_p_is_small_exactly_when_the_interval_excludes_zero(seed: int, level: float, shift: float) -> None:
    result = compare(crossed(seed, (3, 12)) + shift, crossed(seed + 1, (2, 12)), level=level, resamples=100)
    assert (result.p < 1 - level) == (not result.difference.low <= 0 <= result.difference.high)


# ---- nothing varies


def test_equal_methods_do_not_differ() -> None:
    scores = crossed(shape=(1, 24))
    assert compare(scores, scores) == (Estimate(0, 0, 0, 0, 1), 1, 0)


def test_constant_difference_is_certain() -> None:
    result = compare(np.ones((2, 4)), np.zeros((3, 4)))
    assert result == (Estimate(1, 1, 1, 0, 2), 0, np.inf)
    assert compare(np.zeros((3, 4)), np.ones((2, 4))).effect == -np.inf
    rounded = np.array([[0.1, 0.3]])  # + 0.2: the differences differ in their last digit
    assert compare(rounded, rounded + 0.2).effect == -np.inf


def test_one_class_leaves_the_trainings_and_no_effect_size() -> None:
    runs = np.array([[0.1], [0.4], [0.3]])
    low, high = stats.t.interval(0.95, 2, runs.mean(), stats.sem(runs[:, 0]))
    assert half(estimate(runs, resamples=MANY)) == pytest.approx((high - low) / 2, rel=CLOSE)
    assert np.isnan(compare(runs, runs + 1).effect)


# ---- many comparisons


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.999))
def test_holm_rejects_as_the_step_down_procedure(p_values: list[float], alpha: float) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - step) > alpha:
            break
        rejected.add(index)
    assert {int(index) for index in np.flatnonzero(holm(p_values) <= alpha)} == rejected


def test_holm_by_hand() -> None:
    assert holm([0.2, 0.01, 0.6, 0.012, 0.9]) == pytest.approx([0.6, 0.05, 1, 0.05, 1])


# ---- bad input

GOOD = np.zeros((2, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate(np.zeros(4)), r"scores of shape .* got scores \(4,\)"),
        (lambda: estimate(0.5), r"scores of shape .* got scores \(1,\)"),
        (lambda: estimate(np.zeros((2, 0))), "scores of shape"),
        (lambda: estimate(GOOD, [0, 1]), r"one cluster label per query, got scores \(2, 4\) and labels \(2,\)"),
        (lambda: compare(GOOD, np.zeros((2, 5))), r"same queries .* \(2, 4\) and \(2, 5\)"),
        (lambda: estimate(np.full((2, 4), np.nan)), "got a NaN for each"),
        (lambda: estimate([[np.nan, 1], [1, np.nan]]), "got a NaN for each"),
        (lambda: estimate([[0.5]]), "nothing varies"),
        (lambda: estimate([[0.5, 0.6]], [7, 7]), "nothing varies"),
        (lambda: estimate(GOOD, level=1.0), "0 < level < 1"),
        (lambda: estimate(GOOD, level=95), "0 < level < 1"),
        (lambda: compare(GOOD, GOOD, resamples=10), "resamples ≥ 100, got 0.95 and 10"),
        (lambda: collections(GOOD), r"\(folds, repeats, queries\), got \(2, 4\)"),
        (lambda: holm([0.1, 1.2]), "p-values in"),
        (lambda: holm([0.1, np.nan]), "p-values in"),
    ],
)
def test_bad_input_is_one_sentence(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
