from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from evenhand.stats import Interval, Jackknife, cluster_jackknife, mean_interval, paired_cluster_jackknife
from evenhand.stats.intervals import bounded_interval

Floats = NDArray[np.float64]


def share(sums: Floats) -> Floats:
    """Column 0 of column 1."""
    return sums[..., 0] / sums[..., 1]


def correlated_answers(rng: np.random.Generator, clusters: int, size: int) -> Floats:
    """0/1 answers around a true share of 0.5, with an intraclass correlation of 1/3."""
    return (rng.random((clusters, size)) < rng.beta(1, 1, (clusters, 1))).astype(float)


def counts_of(answers: Floats) -> Floats:
    """One row (successes, trials) per row of answers."""
    return np.stack([answers.sum(axis=1), np.full(len(answers), answers.shape[1])], axis=1)


def test_three_clusters_by_hand():
    # Without one cluster the share is 3/4, 2/4 and 1/4; the variance is 2/3 × 2/16.
    result = cluster_jackknife([[0, 2], [1, 2], [2, 2]], share)

    error = (2 / 3 * 2 / 16) ** 0.5
    # Deviations of −1, 0 and 1 quarters: 2.5 × 2²/2 − 1 = 4 degrees of freedom, of which there are only 2.
    half = scipy_stats.t.ppf(0.975, 2) * error
    assert (result.standard_error, result.df) == (pytest.approx(error), 2)
    assert (result.interval.low, result.interval.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_it_equals_a_plain_loop_for_a_statistic_that_is_no_mean():
    rng = np.random.default_rng(2)
    counts = np.stack([rng.integers(0, 5, 30), rng.integers(5, 12, 30), np.full(30, 20)], axis=1).astype(float)

    def skewed(sums: Floats) -> Floats:
        return sums[..., 2] * sums[..., 0] / (sums[..., 0] + sums[..., 1]) ** 2

    without = np.array([skewed(np.delete(counts, place, axis=0).sum(axis=0)) for place in range(30)])
    assert cluster_jackknife(counts, skewed).standard_error == pytest.approx(
        np.sqrt(29 / 30 * ((without - without.mean()) ** 2).sum())
    )


def test_a_cluster_that_outweighs_the_others_costs_degrees_of_freedom():
    even, uneven = [[place % 2, 1.0] for place in range(20)], [[place % 2, 1.0] for place in range(19)] + [[40.0, 40.0]]

    assert cluster_jackknife(even, share).df == 19
    assert cluster_jackknife(uneven, share).df < 4


@pytest.mark.parametrize(
    ("draw", "true", "bounds"),
    [
        (lambda rng: np.stack([rng.normal(1.0, 1.0, 8), np.ones(8)], axis=1), 1.0, None),
        (lambda rng: counts_of(correlated_answers(rng, 8, 10)), 0.5, (0.0, 1.0)),
        (lambda rng: np.stack([rng.gamma(4.0, 0.25, 8), np.ones(8)], axis=1), 1.0, (0.0, float("inf"))),
    ],
)
def test_eight_clusters_keep_the_coverage(
    draw: Callable[[np.random.Generator], Floats], true: float, bounds: tuple[float, float] | None
):
    rng = np.random.default_rng(8)
    covered = 0

    for _ in range(1000):
        interval = cluster_jackknife(draw(rng), share, bounds=bounds).interval
        covered += interval.low <= true <= interval.high

    assert 0.93 <= covered / 1000 <= 0.98


def test_clustering_restores_the_coverage_that_ignoring_it_loses():
    rng = np.random.default_rng(5)
    datasets, clustered, unclustered = 300, 0, 0

    for _ in range(datasets):
        answers = correlated_answers(rng, clusters=40, size=8)
        by_cluster = cluster_jackknife(counts_of(answers), share).interval
        by_item = cluster_jackknife(counts_of(answers.reshape(-1, 1)), share).interval
        clustered += by_cluster.low <= 0.5 <= by_cluster.high
        unclustered += by_item.low <= 0.5 <= by_item.high

    assert 0.92 <= clustered / datasets <= 0.98
    assert unclustered / datasets < 0.82


def test_a_spread_of_zero_is_not_certainty():
    counts = [[3.0, 3.0]] * 10

    assert cluster_jackknife(counts, share) == Jackknife(Interval(1.0, None, None, 10), 0.0)
    # Wilson's limit of 10 of 10.
    known = cluster_jackknife(counts, share, bounds=(0.0, 1.0)).interval
    assert (known.low, known.high) == (pytest.approx(10 / (10 + 3.841459)), 1.0)
    assert cluster_jackknife(counts, share, bounds=(0.0, float("inf"))).interval.high is None


def test_a_scale_without_an_upper_end_keeps_the_lower_limit_above_zero():
    plain, half_open = (bounded_interval(2.0, 1.0, 9, bounds) for bounds in ((-1e9, 1e9), (0.0, float("inf"))))

    # The roots of (2 − x)² = t²·x/2.
    t = scipy_stats.t.ppf(0.975, 8)
    assert (half_open.low, half_open.high) == pytest.approx(tuple(sorted(np.roots([1, -4 - t**2 / 2, 4]))))
    assert plain.low < 0 < half_open.low


def test_a_statistic_that_needs_one_cluster_has_no_limits():
    # Only the first cluster has trials.
    assert cluster_jackknife([[1, 2], [0, 0], [0, 0]], share) == Jackknife(Interval(0.5, None, None, 3))
    assert cluster_jackknife([[1, 2]], share) == Jackknife(Interval(0.5, None, None, 1))


def test_an_undefined_statistic_is_undefined():
    assert cluster_jackknife([[0, 0], [0, 0]], share) == Jackknife(Interval(None, None, None, 2))
    assert cluster_jackknife(np.empty((0, 2)), share) == Jackknife(Interval(None, None, None, 0))


def test_pairing_is_tighter_than_two_independent_samples():
    rng = np.random.default_rng(7)
    before = correlated_answers(rng, 50, 8)
    after = np.where(rng.random(before.shape) < 0.1, 1 - before, before)

    paired = paired_cluster_jackknife(counts_of(before), counts_of(after), share)
    shuffled = paired_cluster_jackknife(counts_of(before), counts_of(rng.permutation(after)), share)

    assert paired.interval.estimate == pytest.approx(after.mean() - before.mean())
    assert paired.standard_error < 0.5 * shuffled.standard_error


def test_a_paired_difference_of_shares_is_the_mean_difference():
    rng = np.random.default_rng(8)
    before, after = correlated_answers(rng, 80, 5), correlated_answers(rng, 80, 5)

    result = paired_cluster_jackknife(counts_of(before), counts_of(after), share)

    mean = mean_interval((after - before).ravel(), np.repeat(np.arange(80), 5))
    assert (result.interval.low, result.interval.high) == pytest.approx((mean.low, mean.high))


def test_two_equal_methods_differ_by_nothing():
    counts = counts_of(correlated_answers(np.random.default_rng(9), 20, 5))

    assert paired_cluster_jackknife(counts, counts, share).interval == Interval(0.0, None, None, 20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster_jackknife([1, 2], share), "dimension"),
        (lambda: cluster_jackknife([[1, float("nan")]], share), "finite"),
        (lambda: cluster_jackknife([[1, 2]], share, confidence=1.0), "confidence"),
        (lambda: cluster_jackknife([[1, 2]], lambda sums: sums), "statistic must return shape"),
        (lambda: paired_cluster_jackknife([[1, 2]], [[1, 2], [1, 2]], share), "the same shape"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Jackknife], message: str):
    with pytest.raises(ValueError, match=message):
        call()
