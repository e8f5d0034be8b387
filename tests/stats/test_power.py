from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from scipy.stats import chi2, nct, t
from statsmodels.stats.power import normal_power_het

from evenhand.stats import (
    design_effect,
    mcnemar_exact,
    mde_from_standard_error,
    mde_paired_share,
    mde_share,
    mean_interval,
    size_for_half_width,
)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_the_detectable_change_has_the_stated_power_in_statsmodels(share: float, power: float):
    change = mde_share(400, share, power=power)

    reached = share + change if share <= 0.5 else share - change
    # One tail of half the level: the chance to reject on the wrong side is no detection.
    found = normal_power_het(
        change,
        400,
        0.025,
        std_null=sqrt(share * (1 - share)),
        std_alternative=sqrt(reached * (1 - reached)),
        alternative="larger",
    )
    assert found == pytest.approx(power)


@pytest.mark.parametrize("discordant", [0.05, 0.3, 1.0])
def test_the_detectable_paired_change_has_the_stated_power_in_statsmodels(discordant: float):
    change = mde_paired_share(500, discordant, alpha=0.01, power=0.9)

    found = normal_power_het(
        change,
        500,
        0.005,
        std_null=sqrt(discordant),
        std_alternative=sqrt(discordant - change**2),
        alternative="larger",
    )
    assert found == pytest.approx(0.9)


def test_the_paired_change_is_found_by_mcnemar_about_as_often_as_promised():
    n, discordant = 1000, 0.2
    change = mde_paired_share(n, discordant)
    chances = [(discordant + change) / 2, (discordant - change) / 2, 1 - discordant]

    outcomes = np.random.default_rng(1).multinomial(n, chances, size=1000)

    found = np.mean([mcnemar_exact(int(first), int(second)) < 0.05 for first, second, _ in outcomes])
    assert 0.74 < found < 0.84


def test_change_of_a_fair_share_by_hand():
    # At 0.5: d·√n = z_alpha/2 + z_power·√(1/4 - d²), with 1.959964 and 0.841621.
    change = mde_share(100, 0.5)

    assert change * 10 == pytest.approx(1.959964 / 2 + 0.841621 * sqrt(0.25 - change**2), abs=1e-6)
    assert change == pytest.approx(0.1386, abs=1e-3)


def test_a_share_of_zero_still_has_a_detectable_change():
    assert mde_share(100, 0.0) == pytest.approx(0.841621**2 / (100 + 0.841621**2), abs=1e-6)


def test_a_share_and_its_complement_are_equally_hard():
    assert mde_share(300, 0.2) == pytest.approx(mde_share(300, 0.8))


def test_a_design_effect_acts_as_a_smaller_sample():
    assert mde_share(900, 0.3, design_effect=3) == mde_share(300, 0.3)
    assert mde_paired_share(900, 0.3, design_effect=3) == mde_paired_share(300, 0.3)


def test_a_sample_too_small_for_any_change_gives_none():
    assert mde_share(0, 0.5) is None
    assert mde_share(0, 0.0, power=0.5) is None
    assert mde_share(2, 0.5) is None
    assert mde_share(2, 0.5, power=0.99) is None
    assert mde_paired_share(0, 0.5) is None
    assert mde_paired_share(100, 0.0) is None
    # Two discordant pairs can never be significant, whichever way they fall.
    assert mde_paired_share(100, 0.02) is None


@pytest.mark.parametrize("n", [3, 4, 5, 8, 20])
def test_a_change_is_never_larger_than_the_room_for_it(n: int):
    for share in np.linspace(0, 1, 21):
        change = mde_share(n, share)
        paired_change = mde_paired_share(n, share)
        assert change is None or 0 < change <= max(share, 1 - share)
        assert paired_change is None or 0 < paired_change <= share


@pytest.mark.parametrize(
    ("alpha", "edge"),
    [(0.2273529555737107, 0.6861790939667024), (0.07391612817810989, 0.3131025841688417)],
)
def test_rounding_does_no_harm_at_the_very_edge(alpha: float, edge: float):
    # At these design effects the critical value of the test is the largest possible change itself.
    assert mde_share(1, 0.5, alpha=alpha, power=0.5, design_effect=edge) == pytest.approx(0.5)
    assert mde_paired_share(1, 1.0, alpha=alpha, power=0.5, design_effect=edge) == pytest.approx(1.0)


def test_change_from_a_standard_error():
    assert mde_from_standard_error(0.1) == pytest.approx(0.2801585, abs=1e-6)
    assert mde_from_standard_error(0.1, alpha=0.01, power=0.9) == pytest.approx(0.3857381, abs=1e-6)


@pytest.mark.parametrize(("df", "alpha"), [(11, 0.05), (11, 0.01), (39, 0.01)])
def test_a_change_from_an_estimated_error_is_found_by_students_test_as_often_as_promised(df: int, alpha: float):
    # A typical estimate of a true error of 1.
    change = mde_from_standard_error(np.sqrt(chi2.median(df) / df), alpha=alpha, df=df)

    found = nct.sf(t.ppf(1 - alpha / 2, df), df, change)
    assert 0.8 <= found <= 0.84


def test_design_effect_by_hand():
    assert design_effect([5, 5, 5], 0.25) == pytest.approx(2.0)
    assert design_effect([1, 3], 0.5) == pytest.approx(1 + (10 / 4 - 1) * 0.5)
    assert design_effect([1, 1, 1], 0.9) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mde_share(-1, 0.5), "n must be"),
        (lambda: mde_share(10, 1.5), "share must lie"),
        (lambda: mde_share(10, 0.5, alpha=0), "alpha"),
        (lambda: mde_share(10, 0.5, power=1), "power"),
        (lambda: mde_share(10, 0.5, power=0.4), "power"),
        (lambda: mde_share(10, 0.5, design_effect=0), "design_effect"),
        (lambda: mde_paired_share(10, -0.1), "discordant_share"),
        (lambda: mde_paired_share(10, 0.1, design_effect=float("nan")), "design_effect"),
        (lambda: mde_from_standard_error(-1), "standard_error"),
        (lambda: mde_from_standard_error(float("nan")), "standard_error"),
        (lambda: design_effect([], 0.1), "at least one item"),
        (lambda: design_effect([2, -1], 0.1), "cluster_sizes"),
        (lambda: design_effect([2, 2], 1.1), "intraclass_correlation"),
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
