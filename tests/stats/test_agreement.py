import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats import inter_rater

from evenhand.stats import (
    Interval,
    Level,
    cohen_interval,
    cohen_kappa,
    fleiss_interval,
    fleiss_kappa,
    krippendorff_alpha,
    score_agreement,
    spearman,
    spearman_interval,
)


@pytest.fixture
def correlated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, 80)
    return x, np.exp(x) + rng.normal(0, 1, 80)


def test_spearman_equals_scipy(correlated: tuple[np.ndarray, np.ndarray]):
    assert spearman(*correlated) == pytest.approx(scipy_stats.spearmanr(*correlated).statistic)


def test_spearman_with_ties_equals_scipy():
    x, y = np.random.default_rng(2).integers(1, 5, (2, 60))

    assert spearman(x, y) == pytest.approx(scipy_stats.spearmanr(x, y).statistic)


def test_spearman_by_hand():
    assert spearman([1, 2, 3], [6, 4, 2]) == pytest.approx(-1)
    assert spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert spearman([1, 2, 3], [1, 10, 1000]) == pytest.approx(1)


def test_rounding_never_carries_a_correlation_beyond_one():
    for values in np.random.default_rng(5).normal(0, 1, (50, 7)):
        assert spearman(values, 3 * values) <= 1
        assert spearman(values, -3 * values) >= -1


@pytest.mark.parametrize(("x", "y"), [([0.1, 0.1, 0.1], [1, 2, 3]), ([1, 2, 3], [0.1, 0.1, 0.1]), ([1], [2]), ([], [])])
def test_a_correlation_without_variation_is_undefined(x: list[float], y: list[float]):
    assert spearman(x, y) is None
    assert spearman_interval(x, y) == Interval(None, None, None, len(x))


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("per_cluster", [1, 4])
def test_the_limits_of_a_correlation_hold_the_truth(rho: float, per_cluster: int):
    """Of 40 clusters, whose items share most of both values; the truth is 6/π · asin(ρ/2)."""
    rng = np.random.default_rng(7)
    truth = 6 / np.pi * np.arcsin(rho / 2)
    clusters = np.repeat(np.arange(40), per_cluster)
    held = 0
    for _ in range(200):
        x, noise = (rng.normal(size=40)[clusters] + 0.3 * rng.normal(size=clusters.size) for _ in range(2))
        y = rho * x + np.sqrt(1 - rho**2) * noise
        found = spearman_interval(x, y, clusters.tolist())
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high

    assert 180 <= held <= 199


def test_two_scores_agree_by_rank_side_and_mean():
    found = score_agreement("toxicity", [0.1, 0.9, 0.6, 0.2], [0.2, 0.8, 0.4, 0.3])

    assert (found.attribute, found.n) == ("toxicity", 4)
    assert found.spearman.estimate == pytest.approx(1)
    assert found.difference.estimate == pytest.approx(-0.025)
    assert found.same_side.estimate == 0.75
    assert found.kappa.estimate == pytest.approx(0.5)
    assert score_agreement("toxicity", [], []).same_side.estimate is None


def test_a_correlation_refuses_bad_input():
    with pytest.raises(ValueError, match="the same length"):
        spearman([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="finite"):
        spearman([1, float("nan")], [1, 2])


def test_cohen_kappa_equals_statsmodels():
    a, b = np.random.default_rng(3).integers(0, 4, (2, 90))
    b[:45] = a[:45]
    table = np.zeros((4, 4))
    np.add.at(table, (a, b), 1)

    assert cohen_kappa(a.tolist(), b.tolist()) == pytest.approx(inter_rater.cohens_kappa(table).kappa)


def test_cohen_kappa_by_hand():
    # They agree on 3 of 4; chance is 1/2 · 3/4 + 1/2 · 1/4 = 1/2.
    assert cohen_kappa(["yes", "yes", "no", "no"], ["yes", "yes", "yes", "no"]) == pytest.approx(0.5)
    assert cohen_kappa(["yes", "no"], ["no", "yes"]) == pytest.approx(-1)


def test_cohen_kappa_without_variation_is_undefined():
    assert cohen_kappa(["yes"] * 3, ["yes"] * 3) is None
    assert cohen_kappa([], []) is None


def test_cohen_kappa_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="the same length"):
        cohen_kappa(["yes"], [])


def test_fleiss_kappa_equals_statsmodels():
    table = np.random.default_rng(4).multinomial(6, [0.5, 0.3, 0.2], size=40)

    assert fleiss_kappa(table) == pytest.approx(inter_rater.fleiss_kappa(table))


def test_fleiss_kappa_by_hand():
    assert fleiss_kappa([[3, 0], [0, 3]]) == pytest.approx(1)
    # Within an item 1 of 3 pairs agree, chance is 1/2.
    assert fleiss_kappa([[2, 1], [1, 2]]) == pytest.approx((1 / 3 - 1 / 2) / (1 / 2))


@pytest.mark.parametrize("table", [[[3, 0], [3, 0]], [[1, 0], [0, 1]], np.zeros((0, 2))])
def test_fleiss_kappa_without_variation_or_a_second_rater_is_undefined(table: object):
    assert fleiss_kappa(table) is None


def test_fleiss_kappa_refuses_bad_tables():
    with pytest.raises(ValueError, match="same number of ratings"):
        fleiss_kappa([[2, 1], [1, 1]])
    with pytest.raises(ValueError, match="whole numbers of at least 0"):
        fleiss_kappa([[4, -1], [1, 2]])
    with pytest.raises(ValueError, match="dimension"):
        fleiss_kappa([3, 0])


# Four observers of twelve units: the worked example in Krippendorff (2011).
PUBLISHED = [[1, 1, 1], [2, 2, 3, 2], [3] * 4, [3] * 4, [2] * 4, [1, 2, 3, 4], [4] * 4, [1, 1, 2, 1], [2] * 4, [5] * 3]
PUBLISHED += [[1, 1], [3]]


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("interval", 0.849)])
def test_krippendorff_alpha_of_the_published_example(level: Level, alpha: float):
    found = krippendorff_alpha(PUBLISHED, level)

    assert found.estimate == pytest.approx(alpha, abs=5e-4)
    assert found.n == 11  # a single rating agrees with nobody


def test_krippendorff_alpha_by_hand():
    # 0 is said three times and 1 once. Two of the four ordered pairs within units differ; by chance, 6 of 12 do.
    assert krippendorff_alpha([[0, 0], [1, 0], [1]]).estimate == 0
    assert krippendorff_alpha([[0, 0], [9, 9]], "interval").estimate == 1


def test_krippendorff_alpha_without_variation_or_a_second_rating_is_undefined():
    assert krippendorff_alpha([[1, 1], [1, 1]]) == Interval(None, None, None, 2)
    assert krippendorff_alpha([[1], [2]]) == Interval(None, None, None, 0)


def test_intervals_of_agreement_cover_the_truth():
    """Two raters say the truth in 80 % of cases, else one of the three bands at random: kappa is 0.64."""
    covered = {"cohen": 0, "fleiss": 0, "alpha": 0}
    draws = np.random.default_rng(7)
    for _ in range(300):
        truth = draws.integers(0, 3, size=60)
        said = np.where(draws.random((60, 2)) < 0.8, truth[:, None], draws.integers(0, 3, size=(60, 2)))
        table = np.stack([(said == each).sum(axis=1) for each in range(3)], axis=1)
        cohen = cohen_interval(said[:, 0].tolist(), said[:, 1].tolist())
        alpha = krippendorff_alpha(said.tolist())
        for name, found in (("cohen", cohen), ("fleiss", fleiss_interval(table)), ("alpha", alpha)):
            assert found.low is not None
            assert found.high is not None
            covered[name] += found.low <= 0.64 <= found.high
    assert all(0.92 <= each / 300 <= 0.98 for each in covered.values()), covered


def test_agreement_of_copied_items_is_no_more_certain():
    table = np.random.default_rng(1).multinomial(3, [0.5, 0.3, 0.2], size=30)
    once = fleiss_interval(table)
    copied = fleiss_interval(np.repeat(table, 5, axis=0), np.repeat(np.arange(30), 5).tolist())

    assert (copied.estimate, copied.low, copied.high) == pytest.approx((once.estimate, once.low, once.high))
    assert (once.n, copied.n) == (30, 150)
