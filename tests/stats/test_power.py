from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, nct, t

from evenhand.stats import (
    mde_from_standard_error,
    mean_interval,
    size_for_half_width,
)


def test_change_from_a_standard_error():
    assert mde_from_standard_error(0.1) == pytest.approx(0.2801585, abs=1e-6)
    assert mde_from_standard_error(0.1, alpha=0.01, power=0.9) == pytest.approx(0.3857381, abs=1e-6)


@pytest.mark.parametrize(("df", "alpha"), [(11, 0.05), (11, 0.01), (39, 0.01)])
def test_a_change_from_an_estimated_error_is_found_by_students_test_as_often_as_promised(df: int, alpha: float):
    # A typical estimate of a true error of 1.
    change = mde_from_standard_error(np.sqrt(chi2.median(df) / df), alpha=alpha, df=df)

    found = nct.sf(t.ppf(1 - alpha / 2, df), df, change)
    assert 0.8 <= found <= 0.84


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mde_from_standard_error(-1), "standard_error"),
        (lambda: mde_from_standard_error(float("nan")), "standard_error"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], float | None], message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_size_for_a_half_width_reaches_it():
    """Half of the studies of that size reach the wanted width: the spread of the first values is only an estimate."""
    draws = np.random.default_rng(5)
    first = draws.normal(0, 20, 200)
    start = mean_interval(first)
    n = size_for_half_width(200, (start.high - start.low) / 2, 1.5)

    widths = [mean_interval(draws.normal(0, first.std(ddof=1), n)) for _ in range(200)]
    assert np.median([(each.high - each.low) / 2 for each in widths]) == pytest.approx(1.5, rel=0.02)
    assert n > 200


def test_a_width_that_is_reached_needs_no_more():
    assert size_for_half_width(40, 5, 5) == 40
    assert size_for_half_width(40, 5, 10) < 40
    assert size_for_half_width(40, 0, 1) == 2
    with pytest.raises(ValueError, match="above 0"):
        size_for_half_width(40, 5, 0)
