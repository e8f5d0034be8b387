import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import contingency

from evenhand.stats import Interval, RatioTest, lowest_ratio, lowest_ratio_interval

Floats = NDArray[np.float64]


def lowest(cells: Floats, *, alone: bool) -> Interval:
    """Of clusters × groups × (chosen, shown)."""

    def statistic(sums: Floats) -> Floats:
        table = sums.reshape(*sums.shape[:-1], -1, 2)
        return lowest_ratio(table[..., 0] / table[..., 1])

    return lowest_ratio_interval(cells.reshape(len(cells), -1), statistic, [RatioTest(cells, alone)])


def drawn(rng: np.random.Generator, rates: Floats, clusters: int, *, alone: bool) -> Floats:
    """Eight choices a cluster: who is chosen of all, or of each alone whether."""
    size = clusters, len(rates)
    chosen = rng.binomial(8, rates, size) if alone else rng.multinomial(8, rates / rates.sum(), clusters)
    return np.stack([chosen, np.full(size, 8)], axis=-1).astype(float)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("groups", [2, 3, 4, 6, 8])
def test_the_interval_of_random_choosers_contains_equal_groups(groups: int, alone: bool):
    rng = np.random.default_rng(groups)
    for clusters, runs in ((1, 150), (10, 150), (100, 40)):
        tables = [drawn(rng, np.full(groups, 0.6), clusters, alone=alone) for _ in range(runs)]
        held = [lowest(cells, alone=alone).includes(1.0) for cells in tables]
        assert sum(held) / runs >= 0.9


@pytest.mark.parametrize("ratio", [0.5, 0.8])
def test_the_interval_contains_the_ratio_of_groups_that_differ(ratio: float):
    rng = np.random.default_rng(7)
    tables = [drawn(rng, np.array([0.6, 0.6 * ratio, 0.5]), 60, alone=True) for _ in range(100)]
    found = [lowest(cells, alone=True) for cells in tables]

    assert sum(each.includes(ratio) for each in found) >= 90
    assert ratio > 0.5 or sum(each.includes(1.0) for each in found) == 0


def test_a_group_that_was_never_shown_is_no_group():
    cells = np.array([[[4.0, 8.0], [4.0, 8.0], [0.0, 0.0]]] * 5)

    assert RatioTest(cells, alone=True).p_value(1.0) == pytest.approx(1.0)
    assert RatioTest(cells[:, :1], alone=True).p_value(1.0) is None


def agreeing(rng: np.random.Generator, groups: int, clusters: int, *, alone: bool) -> Floats:
    """Each cluster makes the same choice eight times, whichever it is."""
    if alone:
        chosen = rng.integers(0, 2, (clusters, groups))
    else:
        chosen = np.eye(groups, dtype=int)[rng.integers(groups, size=clusters)]
    return np.stack([8 * chosen, np.full((clusters, groups), 8)], axis=-1).astype(float)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("groups", [2, 3, 8])
def test_few_clusters_that_agree_within_themselves_rarely_show_a_difference(groups: int, alone: bool):
    rng = np.random.default_rng(groups)
    tests = [RatioTest(agreeing(rng, groups, n, alone=alone), alone) for n in (5, 6, 8, 12) for _ in range(60)]
    p_values = [each.p_value(1.0) for each in tests]

    # The level is 5 %; with chi-square it is 6 to 11 %.
    assert sum(p is not None and p <= 0.05 for p in p_values) <= 0.055 * len(p_values)


def test_clusters_that_are_all_alike_show_no_more_than_their_number():
    alike = np.array([[[8.0, 8.0], [0.0, 8.0]]])

    p_values = [RatioTest(np.repeat(alike, n, axis=0), alone=False).p_value(1.0) for n in (1, 5, 6, 12)]

    assert p_values[:3] == [1.0, pytest.approx(2**-4, rel=0.2), pytest.approx(2**-5, rel=0.2)]
    assert p_values[3] is not None and p_values[3] <= 0.001
    # Six alike are 1 in 11 where one group is chosen twice as often.
    assert RatioTest(np.repeat(alike, 6, axis=0), alone=False).p_value(0.5) == pytest.approx((2**6 + 1) / 3**6)


def test_independent_choices_have_pearsons_test():
    cells = np.array([[[30.0, 100.0], [50.0, 100.0]]])

    expected = contingency.chi2_contingency([[30, 50], [70, 50]], correction=False).pvalue
    assert RatioTest(cells, alone=True, independent=True).p_value(1.0) == pytest.approx(expected)


@pytest.mark.parametrize(("clusters", "low"), [(2, 0.34), (20, 0.84), (200, 0.98)])
def test_where_everybody_was_chosen_the_ratio_is_as_sure_as_the_rates(clusters: int, low: float):
    found = lowest(np.full((clusters, 3, 2), 1.0), alone=True)

    assert (found.estimate, found.low, found.high) == (1.0, pytest.approx(low, abs=0.005), 1.0)


def test_a_group_that_only_one_cluster_has_leaves_the_ratio_open():
    cells = np.full((20, 2, 2), 8.0)
    cells[1:, 1] = 0.0

    assert lowest(cells, alone=True).low == 0.0
