import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats as scipy_stats
from statsmodels.stats.proportion import proportion_confint

from evenhand.stats import (
    Interval,
    bounded_mean_interval,
    cluster_jackknife,
    clustered_share,
    mean_interval,
    share_interval,
    widened,
    wilson,
)
from evenhand.stats.intervals import bounded_interval


def share(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 7), (1, 7), (7, 7), (50, 100), (3, 100_000)])
def test_wilson_equals_statsmodels(successes: int, n: int, confidence: float):
    interval = wilson(successes, n, confidence)

    low, high = proportion_confint(successes, n, alpha=1 - confidence, method="wilson")
    assert interval.estimate == successes / n
    assert interval.low == pytest.approx(low, abs=1e-12)
    assert interval.high == pytest.approx(high, abs=1e-12)


def test_wilson_of_none_of_ten_by_hand():
    # z²/(n + z²) with z = 1.959964
    interval = wilson(0, 10)

    assert interval.low == 0.0
    assert interval.high == pytest.approx(3.841459 / 13.841459, abs=1e-6)


@pytest.mark.parametrize("n", [3, 7, 49, 1000])
def test_wilson_limits_are_exact_at_the_edges(n: int):
    assert wilson(0, n).low == 0.0
    assert wilson(n, n).high == 1.0


def test_wilson_without_trials_is_undefined():
    assert wilson(0, 0) == Interval(None, None, None, 0)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, -1)])
def test_wilson_refuses_impossible_counts(successes: int, n: int):
    with pytest.raises(ValueError, match="successes must lie between 0 and n"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, -0.1, float("nan")])
def test_confidence_must_be_a_fraction(confidence: float):
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence)
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1.0, 2.0], confidence=confidence)


def test_mean_interval_equals_the_t_interval_of_scipy():
    values = np.random.default_rng(3).uniform(-3, 7, 37)

    interval = mean_interval(values, confidence=0.9)

    # Flat tails, so the degrees of freedom are all of them.
    low, high = scipy_stats.t.interval(0.9, 36, values.mean(), scipy_stats.sem(values))
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.n == 37


def test_clusters_of_equal_size_give_the_error_of_the_robust_ols_of_statsmodels():
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(12), 10)
    values = rng.uniform(-2, 2, 12)[clusters] + rng.normal(0, 1, 120)
    table = np.stack([np.bincount(clusters, values), np.full(12, 10.0)], axis=1)

    found = cluster_jackknife(table, share)

    fit = sm.OLS(values, np.ones(120)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    # statsmodels also multiplies by (n - 1)/(n - 1) = 1 for one coefficient.
    assert found.standard_error == pytest.approx(float(fit.bse[0]))
    assert mean_interval(values, [f"template-{c}" for c in clusters]).low == pytest.approx(found.interval.low)


def test_copies_of_an_item_in_its_cluster_add_no_certainty():
    once = mean_interval([1.0, 2.0, 4.0])
    thrice = mean_interval([1.0, 2.0, 4.0] * 3, ["a", "b", "c"] * 3)

    assert (thrice.estimate, thrice.low, thrice.high) == pytest.approx((once.estimate, once.low, once.high))


def test_one_cluster_gives_a_mean_without_limits():
    assert mean_interval([1.0, 3.0], ["a", "a"]) == Interval(2.0, None, None, 2)
    assert mean_interval([5.0]) == Interval(5.0, None, None, 1)


def test_mean_of_nothing_is_undefined():
    assert mean_interval([]) == Interval(None, None, None, 0)


def test_mean_interval_refuses_bad_values():
    with pytest.raises(ValueError, match="one cluster per value"):
        mean_interval([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="one cluster per value"):
        mean_interval([], ["a"])
    with pytest.raises(ValueError, match="finite"):
        mean_interval([1.0, float("nan")])
    with pytest.raises(ValueError, match="dimension"):
        mean_interval([[1.0], [2.0]])


def test_equal_values_have_no_t_interval():
    assert mean_interval([0.1] * 3) == Interval(pytest.approx(0.1), None, None, 3)


def test_a_share_of_single_trials_is_wilsons():
    assert share_interval([[1, 1], [0, 1], [1, 1], [1, 1]]) == wilson(3, 4)
    assert share_interval([[1, 1], [1, 1]]) == wilson(2, 2)


def test_a_share_of_named_trials_adds_them_up_by_cluster():
    trials = [("a", True), ("b", False), ("a", False), ("b", False)]

    assert clustered_share(trials) == share_interval([[1, 2], [0, 2]])
    assert clustered_share([]) == Interval()


def test_a_clustered_share_is_wilson_at_the_effective_size():
    counts = np.array([[4, 4], [0, 4], [4, 4], [3, 4], [1, 4], [2, 4]], dtype=float)

    interval = share_interval(counts)

    # By hand: residuals 7/3·…, with the share 14/24; variance 6/5·Σr²/24², effective size p(1−p)/variance.
    share = 14 / 24
    variance = 6 / 5 * float(((counts[:, 0] - 4 * share) ** 2).sum()) / 24**2
    effective, t = share * (1 - share) / variance, scipy_stats.t.ppf(0.975, 5)
    # Wilson's limits are the roots of (share − p)² = t²·p(1 − p)/n.
    roots = np.roots([1 + t**2 / effective, -2 * share - t**2 / effective, share**2])
    assert effective < 24
    assert (interval.low, interval.high) == pytest.approx(tuple(sorted(roots)))
    assert (interval.estimate, interval.n) == (share, 24)


def test_copies_in_a_cluster_do_not_make_a_share_more_certain():
    once, copied = share_interval([[1, 1], [0, 1]] * 10), share_interval([[5, 5], [0, 5]] * 10)

    assert copied.high - copied.low > once.high - once.low


def test_one_success_in_many_clusters_is_no_less_certain_than_one_trial_per_cluster():
    interval = share_interval([[0, 2]] * 19 + [[1, 2]])

    t = scipy_stats.t.ppf(0.975, 19)
    roots = np.roots([1 + t**2 / 20, -2 / 40 - t**2 / 20, 1 / 40**2])
    assert (interval.low, interval.high) == pytest.approx(tuple(sorted(roots)))
    assert interval.high < 0.25


def test_a_share_is_never_more_certain_than_its_trials():
    # Half of every cluster succeeds but once: less spread than chance would give.
    interval = share_interval([[2, 4]] * 19 + [[3, 4]])

    assert interval.high - interval.low >= wilson(41, 80).high - wilson(41, 80).low


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.0, 100.0), (-10.0, 10.0)])
def test_a_bounded_mean_stays_on_its_scale(bounds: tuple[float, float]):
    low, high = bounds
    values = [low, low, low + 0.6 * (high - low)]

    interval = mean_interval(values, bounds=bounds)

    assert mean_interval(values).low < low
    assert low < interval.low < interval.estimate < interval.high < high


def test_far_from_the_bounds_a_bounded_mean_has_the_t_interval():
    values = np.random.default_rng(9).normal(50, 2, 60)
    clusters = list(range(20)) * 3

    plain, bounded = mean_interval(values, clusters), mean_interval(values, clusters, bounds=(0.0, 100.0))

    assert (bounded.low, bounded.high) == pytest.approx((plain.low, plain.high), abs=0.02)


def test_values_without_spread_leave_room_for_what_was_not_seen():
    # Wilson's limit for 0 of 20 differing clusters is z²/(20 + z²) = 0.1611.
    interval = bounded_interval(5.0, 0.0, 20, (0.0, 10.0))

    assert (interval.low, interval.high) == pytest.approx((5 - 0.1611 * 5, 5 + 0.1611 * 5), abs=1e-3)
    assert bounded_mean_interval([[2, 2]] * 20).low == wilson(20, 20).low


def test_one_cluster_of_a_share_has_no_limits():
    assert share_interval([[1, 4]]) == Interval(0.25, None, None, 4)
    assert share_interval(np.empty((0, 2))) == Interval(None, None, None, 0)


def test_clusters_without_trials_do_not_count():
    assert share_interval([[1, 2], [0, 0], [2, 2]]) == share_interval([[1, 2], [2, 2]])


@pytest.mark.parametrize(("share", "clusters"), [(0.5, 12), (0.9, 25), (0.97, 40)])
def test_clustered_shares_keep_the_coverage(share: float, clusters: int):
    rng = np.random.default_rng(10)
    draws, size, covered, naive = 400, 6, 0, 0

    for _ in range(draws):
        # Beta-binomial with an intraclass correlation of 1/4.
        own = rng.beta(3 * share, 3 * (1 - share), clusters)
        counts = np.stack([rng.binomial(size, own), np.full(clusters, size)], axis=1)
        interval, ignoring = share_interval(counts), wilson(int(counts[:, 0].sum()), clusters * size)
        covered += interval.low <= share <= interval.high
        naive += ignoring.low <= share <= ignoring.high

    assert 0.92 <= covered / draws <= 0.99
    assert naive < covered


def test_bounded_means_keep_the_coverage():
    rng = np.random.default_rng(11)
    covered = 0

    for _ in range(400):
        values = rng.beta(0.5, 4.5, 30)
        interval = bounded_mean_interval(np.stack([values, np.ones(30)], axis=1))
        covered += interval.low <= 0.1 <= interval.high

    assert 0.91 <= covered / 400 <= 0.98


def test_a_wider_interval_is_that_of_the_smaller_level():
    low, high = scipy_stats.t.interval(0.95, 19, 1.0, 0.2)
    found = widened(Interval(1.0, low, high, 20), 39)

    assert (found.low, found.high) == pytest.approx(scipy_stats.t.interval(1 - 0.05 / 39, 19, 1.0, 0.2))
    assert widened(Interval(0.9, 0.7, 0.95, 20), 39, (0.0, 1.0)).high == pytest.approx(0.99, abs=0.01)
    assert widened(Interval(0.9, 0.5, 0.99, 20), 39, (0.0, 1.0)).high == 1.0
    assert widened(Interval(0.9, None, None, 1), 39) == Interval(0.9, None, None, 1)
