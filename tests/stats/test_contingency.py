import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.stats.contingency import association

from evenhand.stats.distributions import chi_square_table

TABLES = [
    [[10, 20, 30], [12, 18, 33]],
    [[5, 0, 3, 9], [1, 4, 4, 4], [0, 0, 7, 2], [3, 3, 3, 3]],
    [[900, 100], [100, 900]],
]


@pytest.mark.parametrize("table", TABLES)
def test_the_test_of_a_table_equals_scipy(table: list[list[int]]):
    expected = scipy_stats.chi2_contingency(table, correction=False)

    found = chi_square_table(table)

    assert found.statistic == pytest.approx(expected.statistic)
    assert found.df == expected.dof
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.n == np.sum(table)


@pytest.mark.parametrize("table", TABLES)
def test_cramers_v_equals_scipy(table: list[list[int]]):
    assert chi_square_table(table).cramers_v == pytest.approx(association(np.array(table), method="cramer"))


def test_levels_that_nobody_got_change_nothing():
    assert chi_square_table([[3, 0, 7], [6, 0, 4], [0, 0, 0]]) == chi_square_table([[3, 7], [6, 4]])


def test_rows_that_fully_tell_the_column_have_a_v_of_one():
    assert chi_square_table([[7, 0, 0], [0, 9, 0], [0, 0, 3]]).cramers_v == 1.0


def test_equal_rows_have_no_association():
    found = chi_square_table([[4, 8], [4, 8]])

    assert (found.statistic, found.p_value, found.cramers_v) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("table", [[[3, 4]], [[3], [4]], [[0, 0], [0, 0]], [[3, 0], [4, 0]]])
def test_one_row_or_column_is_undefined(table: list[list[int]]):
    found = chi_square_table(table)

    assert (found.statistic, found.df, found.p_value, found.cramers_v) == (None, 0, None, None)


def test_counts_must_be_whole():
    with pytest.raises(ValueError, match="whole numbers"):
        chi_square_table([[0.5, 1], [1, 1]])
