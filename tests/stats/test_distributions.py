from collections.abc import Callable

import pytest
from scipy import stats as scipy_stats

from evenhand.stats import (
    ChiSquare,
    binomial_sf,
    chi_square_sf,
    chi_square_uniform,
    f_sf,
    student_t_p,
    student_t_quantile,
    total_variation_from_uniform,
)


@pytest.mark.parametrize("df", [1, 2, 3, 10, 51.5, 400, 20_000])
@pytest.mark.parametrize("ratio", [1e-6, 0.3, 0.9, 1.0, 1.1, 2.0, 20.0])
def test_chi_square_tail_equals_scipy(df: float, ratio: float):
    expected = scipy_stats.chi2.sf(df * ratio, df)

    assert chi_square_sf(df * ratio, df) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("df", "df_below"), [(1, 4), (2, 10), (7, 28), (7, 203)])
@pytest.mark.parametrize("x", [0.0, 0.2, 1.0, 3.0, 40.0])
def test_f_tail_equals_scipy(x: float, df: float, df_below: float):
    assert f_sf(x, df, df_below) == pytest.approx(scipy_stats.f.sf(x, df, df_below), rel=1e-9)


def test_chi_square_tail_by_hand():
    assert chi_square_sf(0, 3) == 1.0
    assert chi_square_sf(3.841458820694124, 1) == pytest.approx(0.05)
    assert chi_square_sf(10, 2) == pytest.approx(2.718281828459045**-5)


@pytest.mark.parametrize("counts", [[10, 20, 30], [0, 7], [5, 5, 5, 5], [1000, 1003, 961, 1040, 999]])
def test_chi_square_of_uniform_counts_equals_scipy(counts: list[int]):
    result = chi_square_uniform(counts)

    expected = scipy_stats.chisquare(counts)
    assert result == pytest.approx((expected.statistic, len(counts) - 1, expected.pvalue))


def test_chi_square_without_counts_is_undefined():
    assert chi_square_uniform([0, 0, 0]) == ChiSquare(None, 2, None)


def test_counts_are_held_against_what_is_expected():
    expected = [40.0, 40.0, 20.0]

    assert chi_square_uniform([38, 45, 17], expected).p_value == pytest.approx(
        scipy_stats.chisquare([38, 45, 17], expected).pvalue
    )
    assert total_variation_from_uniform([40, 40, 20], expected) == 0


def test_total_variation_by_hand():
    assert total_variation_from_uniform([5, 5, 5]) == 0
    assert total_variation_from_uniform([8, 0, 0, 0]) == pytest.approx(0.75)
    assert total_variation_from_uniform([3, 1]) == pytest.approx(0.25)


def test_total_variation_without_counts_is_undefined():
    assert total_variation_from_uniform([0, 0]) is None


@pytest.mark.parametrize("df", [1, 2, 3, 7.5, 29, 300, 50_000, 1_000_000])
@pytest.mark.parametrize("p", [1e-9, 0.005, 0.1, 0.4999, 0.5, 0.6, 0.9, 0.975, 0.9995])
def test_student_t_quantile_equals_scipy(p: float, df: float):
    assert student_t_quantile(p, df) == pytest.approx(scipy_stats.t.ppf(p, df), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("df", [1, 7.5, 300])
@pytest.mark.parametrize("t", [-30.0, -1.2, 0.0, 0.01, 2.5])
def test_student_t_p_equals_scipy(t: float, df: float):
    assert student_t_p(t, df) == pytest.approx(2 * scipy_stats.t.sf(abs(t), df), rel=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chi_square_sf(-1, 2), "x must be"),
        (lambda: chi_square_sf(float("nan"), 2), "x must be"),
        (lambda: chi_square_sf(1, 0), "df"),
        (lambda: chi_square_uniform([3, -1]), "whole numbers of at least 0"),
        (lambda: chi_square_uniform([3, 1.5]), "whole numbers of at least 0"),
        (lambda: chi_square_uniform([3]), "at least 2 categories"),
        (lambda: total_variation_from_uniform([]), "at least 2 categories"),
        (lambda: student_t_quantile(1, 3), "p must lie"),
        (lambda: student_t_quantile(0.5, -1), "df"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("successes", "n", "chance"), [(1, 1, 0.03), (1, 5, 0.03), (40, 90, 0.5), (7, 7, 0.9)])
def test_the_upper_tail_of_a_binomial_is_that_of_scipy(successes: int, n: int, chance: float):
    assert binomial_sf(successes, n, chance) == pytest.approx(scipy_stats.binom.sf(successes - 1, n, chance))


def test_the_ends_of_a_binomial_are_exact():
    assert [binomial_sf(0, 5, 0.0), binomial_sf(0, 5, 0.3), binomial_sf(1, 5, 0.0)] == [1.0, 1.0, 0.0]
