import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats as scipy_stats
from statsmodels.stats.proportion import proportion_confint

from evenhand.stats import Interval, mean_interval, wilson


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
    values = np.random.default_rng(3).normal(2, 5, 37)

    interval = mean_interval(values, confidence=0.9)

    low, high = scipy_stats.t.interval(0.9, 36, values.mean(), scipy_stats.sem(values))
    assert interval.estimate == pytest.approx(values.mean())
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.n == 37


def test_clustered_mean_interval_equals_the_robust_ols_of_statsmodels():
    rng = np.random.default_rng(4)
    clusters = rng.integers(0, 12, 150)
    values = rng.normal(0, 2, 12)[clusters] + rng.normal(0, 1, 150)

    interval = mean_interval(values, [f"template-{c}" for c in clusters])

    fit = sm.OLS(values, np.ones(150)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    assert (interval.low, interval.high) == pytest.approx(tuple(fit.conf_int()[0]))
    assert interval.n == 150


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
