"""Platt scaling: ratings as probabilities, whatever part of the scale a judge uses."""

import pytest

from evenhand.stats.agreement import log_odds, platt, sigmoid


def probability(curve: tuple[float, float], rating: float) -> float:
    return sigmoid(curve[0] * log_odds(rating) + curve[1])


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.62, 0.7), (0.003, 0.2), (0.0, 1.0)])
def test_the_kinds_meet_at_one_half(low: float, high: float):
    curve = platt([high] * 24, [low] * 24)

    assert probability(curve, high) > 0.85
    assert probability(curve, low) < 0.15
    assert sum(probability(curve, each) for each in (low, high)) == pytest.approx(1, abs=0.02)


def test_a_rarer_kind_counts_as_much_as_the_other():
    few, many = platt([0.8] * 10, [0.3] * 10), platt([0.8] * 10, [0.3] * 90)

    middle = sigmoid((log_odds(0.8) + log_odds(0.3)) / 2)
    assert probability(few, middle) == pytest.approx(0.5, abs=0.01)
    assert probability(many, middle) == pytest.approx(0.5, abs=0.1)


def test_ratings_that_part_nothing_are_no_evidence():
    assert probability(platt([0.7] * 20, [0.7] * 20), 0.99) == pytest.approx(0.5, abs=0.01)


def test_it_recovers_the_curve_that_made_the_labels():
    ratings = [i / 200 for i in range(1, 200)]
    high = [x for x in ratings for _ in range(round(100 * sigmoid(2 * log_odds(x) - 1)))]
    low = [x for x in ratings for _ in range(100 - round(100 * sigmoid(2 * log_odds(x) - 1)))]

    slope, _ = platt(high, low)

    assert slope == pytest.approx(2, abs=0.05)


def test_one_kind_alone_has_no_curve():
    with pytest.raises(ValueError, match="both kinds"):
        platt([0.5], [])
