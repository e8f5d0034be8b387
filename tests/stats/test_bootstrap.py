from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from evenhand.stats import (
    Bootstrap,
    Interval,
    bootstrap,
    cluster_bootstrap,
    mean_interval,
    paired_cluster_bootstrap,
)

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


def test_two_clusters_by_hand():
    # Resamples give a share of 0, 1/2 or 1 with probability 1/4, 1/2 and 1/4: variance 1/8.
    result = cluster_bootstrap([[0, 1], [1, 1]], share, resamples=20_000)

    # Two clusters cannot give a 95 % interval, whatever the resamples say.
    assert result.interval == Interval(0.5, None, None, 2)
    assert result.standard_error == pytest.approx(0.125**0.5, rel=0.02)
    assert result.p_value == pytest.approx(2 * 0.25, rel=0.05)
    assert result.undefined_share == 0


def test_confidence_sets_the_percentiles():
    # Two clusters and 40 %: t is 0.7265, times √2 is 1.0274, so the limits are the percentiles 15 and 85 of 0, 1/2, 1.
    result = cluster_bootstrap([[0, 1], [1, 1]], share, confidence=0.4)

    assert (result.interval.low, result.interval.high) == (0.0, 1.0)


@pytest.mark.parametrize(("clusters", "has_limits"), [(2, False), (5, False), (6, True)])
def test_limits_need_as_many_clusters_as_a_significant_test(clusters: int, has_limits: bool):
    counts = [[place % 2, 1.0] for place in range(clusters)]

    interval = cluster_bootstrap(counts, share).interval

    assert (interval.low is not None) is has_limits


def test_a_spread_of_zero_is_not_certainty():
    counts = [[3.0, 3.0]] * 10

    assert cluster_bootstrap(counts, share).interval == Interval(1.0, None, None, 10)
    # Wilson's limit of 10 of 10.
    known = cluster_bootstrap(counts, share, bounds=(0.0, 1.0)).interval
    assert (known.low, known.high) == (pytest.approx(10 / (10 + 3.841459)), 1.0)


def test_few_clusters_keep_the_coverage():
    rng = np.random.default_rng(8)
    covered = 0

    for seed in range(300):
        counts = np.stack([rng.normal(1.0, 1.0, 8), np.ones(8)], axis=1)
        interval = cluster_bootstrap(counts, share, resamples=400, seed=seed).interval
        covered += interval.low <= 1.0 <= interval.high

    # The plain percentiles of eight values cover about 0.88.
    assert 0.92 <= covered / 300 <= 0.98


def test_standard_error_agrees_with_the_cluster_robust_formula():
    answers = correlated_answers(np.random.default_rng(1), 60, 10)

    result = cluster_bootstrap(counts_of(answers), share, resamples=10_000)

    sums = answers.sum(axis=1) - 10 * answers.mean()
    assert result.standard_error == pytest.approx(np.sqrt((sums**2).sum()) / 600, rel=0.03)


def test_interval_agrees_with_a_plain_loop_over_resampled_clusters():
    rng = np.random.default_rng(2)
    counts = np.stack([rng.integers(0, 5, 30), rng.integers(5, 12, 30)], axis=1).astype(float)

    result = cluster_bootstrap(counts, share, resamples=20_000)

    loop = [share(counts[rng.integers(0, 30, 30)].sum(axis=0)) for _ in range(20_000)]
    # Φ(−t·√(30/29)) = 0.0187, with t = 2.0452 for 29 degrees of freedom.
    assert (result.interval.low, result.interval.high) == pytest.approx(
        tuple(np.quantile(loop, [0.0187, 0.9813])), abs=0.005
    )


def test_clustering_restores_the_coverage_that_ignoring_it_loses():
    rng = np.random.default_rng(5)
    datasets, clustered, unclustered = 200, 0, 0

    for seed in range(datasets):
        answers = correlated_answers(rng, clusters=40, size=8)
        by_cluster = cluster_bootstrap(counts_of(answers), share, resamples=400, seed=seed).interval
        by_item = cluster_bootstrap(counts_of(answers.reshape(-1, 1)), share, resamples=400, seed=seed).interval
        clustered += by_cluster.low <= 0.5 <= by_cluster.high
        unclustered += by_item.low <= 0.5 <= by_item.high

    assert 0.90 <= clustered / datasets <= 0.98
    assert unclustered / datasets < 0.82


def test_p_value_holds_its_level_where_there_is_no_effect():
    rng = np.random.default_rng(6)
    found = 0

    for seed in range(200):
        before, after = (counts_of(correlated_answers(rng, 40, 6)) for _ in range(2))
        found += paired_cluster_bootstrap(before, after, share, resamples=400, seed=seed).p_value < 0.05

    assert 0.01 <= found / 200 <= 0.10


@pytest.mark.parametrize(("clusters", "least"), [(2, 0.5), (5, 0.0625), (6, 0.03125), (40, 2 / 100)])
def test_few_clusters_cannot_give_a_small_p_value(clusters: int, least: float):
    before = np.tile([1.0, 4.0], (clusters, 1))
    after = np.tile([2.0, 4.0], (clusters, 1))

    result = paired_cluster_bootstrap(before, after, lambda sums: sums[..., 0] / sums[..., 1], resamples=99)

    assert result.p_value == pytest.approx(least)


def test_paired_difference_by_hand():
    before, after = [[1, 4], [2, 4], [3, 4]], [[2, 4], [3, 4], [4, 4]]

    result = paired_cluster_bootstrap(before, after, share, resamples=99)

    # Every cluster gains exactly 1 of 4, so the difference never varies, though the shares do.
    assert result.interval == Interval(pytest.approx(0.25), None, None, 3)
    assert result.standard_error == pytest.approx(0, abs=1e-12)
    # Three signs that agree are no surprise: 2 × 0.5³.
    assert result.p_value == pytest.approx(0.25)


def test_pairing_is_tighter_than_two_independent_samples():
    rng = np.random.default_rng(7)
    before = correlated_answers(rng, 50, 8)
    after = np.where(rng.random(before.shape) < 0.1, 1 - before, before)

    paired = paired_cluster_bootstrap(counts_of(before), counts_of(after), share)
    shuffled = paired_cluster_bootstrap(counts_of(before), counts_of(rng.permutation(after)), share)

    assert paired.interval.estimate == pytest.approx(after.mean() - before.mean())
    assert paired.standard_error < 0.5 * shuffled.standard_error


def test_paired_interval_agrees_with_the_interval_of_the_mean_difference():
    rng = np.random.default_rng(8)
    before, after = correlated_answers(rng, 80, 5), correlated_answers(rng, 80, 5)

    result = paired_cluster_bootstrap(counts_of(before), counts_of(after), share, resamples=10_000)

    normal = mean_interval((after - before).ravel(), np.repeat(np.arange(80), 5))
    assert (result.interval.low, result.interval.high) == pytest.approx((normal.low, normal.high), abs=0.01)


def test_two_equal_methods_differ_by_nothing():
    counts = counts_of(correlated_answers(np.random.default_rng(9), 20, 5))

    result = paired_cluster_bootstrap(counts, counts, share)

    assert result.interval == Interval(0.0, None, None, 20)
    assert result.p_value == 1.0


def test_same_seed_same_result_other_seed_other_result():
    counts = counts_of(correlated_answers(np.random.default_rng(10), 30, 7))

    assert cluster_bootstrap(counts, share, seed=1) == cluster_bootstrap(counts, share, seed=1)
    assert cluster_bootstrap(counts, share, seed=1) != cluster_bootstrap(counts, share, seed=2)


def test_the_block_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch):
    counts = counts_of(correlated_answers(np.random.default_rng(11), 31, 7))
    whole = cluster_bootstrap(counts, share, resamples=500)

    monkeypatch.setattr(bootstrap, "_BLOCK_CELLS", 31 * 7 + 1)

    assert cluster_bootstrap(counts, share, resamples=500) == whole


def test_undefined_replicates_are_dropped_and_reported():
    # Only the first of two clusters has trials: a resample misses it with probability 1/4.
    result = cluster_bootstrap([[1, 2], [0, 0]], share, resamples=20_000)

    assert result.interval == Interval(0.5, None, None, 2)
    assert result.undefined_share == pytest.approx(0.25, abs=0.02)


def test_an_infinite_value_is_undefined_too():
    result = cluster_bootstrap([[1, 0], [1, 0]], share)

    assert result == Bootstrap(Interval(None, None, None, 2), None, 1.0, None)


@pytest.mark.parametrize("counts", [np.zeros((3, 2)), np.zeros((1, 2)), np.zeros((0, 2))])
def test_an_undefined_statistic_is_not_zero(counts: Floats):
    result = cluster_bootstrap(counts, share)

    assert result == Bootstrap(Interval(None, None, None, len(counts)), None, 1.0, None)


def test_no_clusters_are_undefined_even_where_the_statistic_of_zeros_is_not():
    result = cluster_bootstrap(np.zeros((0, 2)), lambda sums: sums[..., 0])

    assert result.interval.estimate is None


def test_one_cluster_gives_an_estimate_without_limits():
    result = cluster_bootstrap([[1, 4]], share)

    assert result == Bootstrap(Interval(0.25, None, None, 1), None, 0.0, None)


def test_too_few_usable_replicates_give_no_limits():
    result = cluster_bootstrap([[1, 2], [1, 2]], share, resamples=1)

    assert result == Bootstrap(Interval(0.5, None, None, 2), None, 0.0, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster_bootstrap([1, 2], share), "dimension"),
        (lambda: cluster_bootstrap([[1, float("nan")]], share), "finite"),
        (lambda: cluster_bootstrap([[1, 2]], share, confidence=1.0), "confidence"),
        (lambda: cluster_bootstrap([[1, 2]], share, resamples=0), "resamples"),
        (lambda: cluster_bootstrap([[1, 2]], lambda sums: sums), "statistic must return shape"),
        (lambda: paired_cluster_bootstrap([[1, 2]], [[1, 2], [1, 2]], share), "the same shape"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Bootstrap], message: str):
    with pytest.raises(ValueError, match=message):
        call()
