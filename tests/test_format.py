"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from evenhand.core import format as fmt
from evenhand.studies.results import Estimate, MetricInfo, digits_for, estimate_text


@pytest.mark.parametrize(
    ("value", "written"),
    [(12.34, "12.3"), (-12.34, "−12.3"), (0.0, "0.0"), (-0.01, "0.0"), (1234.5, "1,234.5"), (None, "–")],
)
def test_numbers_have_a_true_minus_and_undefined_is_a_dash(value: float | None, written: str) -> None:
    assert fmt.number(value) == written


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_undefined(value: float) -> None:
    assert fmt.number(value) == fmt.money(value) == fmt.duration(value) == fmt.p_value(value) == "–"


def test_differences_carry_their_sign() -> None:
    assert [fmt.signed(v) for v in (3.21, -3.21, 0.0, 0.01, None)] == ["+3.2", "−3.2", "0.0", "0.0", "–"]


def test_an_interval_stands_in_brackets() -> None:
    assert fmt.interval(12.3, 4.5, 20.1) == "12.3 [4.5, 20.1]"


def test_a_missing_interval_shows_as_missing() -> None:
    assert fmt.interval(12.3, None, None) == "12.3 [–]"


def test_an_undefined_value_has_no_interval_but_keeps_its_n() -> None:
    assert estimate_text(Estimate("m", "all", None, None, None, 1240)) == "–, n = 1,240"


@pytest.mark.parametrize(
    ("share", "values", "digits"), [(True, (0.4, 0.1, 0.9), 1), (False, (12, 3, 20), 1), (False, (1.5, 1, 2), 2)]
)
def test_one_precision_per_metric(share: bool, values: tuple[float, float, float], digits: int) -> None:
    estimate = Estimate("m", "all", *values, 10)
    assert digits_for(MetricInfo("m", "M", None, share=share), [estimate]) == digits


def test_values_below_one_show_three_decimals() -> None:
    info = MetricInfo("toxicity", "Toxicity", "lower", share=False)
    assert digits_for(info, [Estimate("toxicity", "all", 0.12, 0.1, 0.14, 9)]) == 3


def test_a_metric_without_values_shows_one_decimal() -> None:
    assert digits_for(MetricInfo("m", "M", None, share=False), []) == 1


@pytest.mark.parametrize(
    ("cost", "written"), [(None, "–"), (0.0, "$0.00"), (0.0004, "<$0.01"), (0.005, "$0.01"), (1234.5, "$1,234.50")]
)
def test_money_is_a_dash_only_when_no_price_is_known(cost: float | None, written: str) -> None:
    assert fmt.money(cost) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.04, "0.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_use_two_units_at_most(seconds: float, written: str) -> None:
    assert fmt.duration(seconds) == written


def test_p_values_below_a_thousandth_are_not_zero() -> None:
    assert [fmt.p_value(p) for p in (0.0, 0.0009, 0.032, 1.0, None)] == ["<0.001", "<0.001", "0.032", "1.000", "–"]
    assert [fmt.p_statement(p) for p in (0.0, 0.032, None)] == [
        "p < 0.001",
        "p = 0.032",
        "no p-value",
    ]


def test_a_share_of_nothing_is_undefined() -> None:
    assert (fmt.share(0, 0), fmt.share(0, 5), fmt.share(5, 5)) == ("–", "0.0 %", "100.0 %")


def test_nouns_agree_with_their_number() -> None:
    assert (fmt.plural(1, "arm"), fmt.plural(0, "arm"), fmt.plural(1200, "arm")) == ("1 arm", "0 arms", "1,200 arms")
