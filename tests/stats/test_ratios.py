import numpy as np
import pytest
from numpy.typing import NDArray

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
