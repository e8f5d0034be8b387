"""Confidence sequences: they hold at all times at once, and find a difference sooner or later."""

import numpy as np
import pytest

from evenhand.stats import MeanSequence

TIMES = 300
RUNS = 200


def ever_excludes(values: np.ndarray, mean: float, alpha: float, bounds: tuple[float, float]) -> bool:
    state = MeanSequence(alpha, bounds)
    for value in values:
        state = state.added(float(value))
        if state.excludes(mean):
            return True
    return False


def drawn(rng: np.random.Generator, kind: str) -> np.ndarray:
    match kind:
        case "rare":
            return rng.binomial(1, 0.1, TIMES)
        case "skewed":
            return rng.beta(2, 5, TIMES)
        case _:
            return rng.integers(0, 2, TIMES)


@pytest.mark.parametrize(("kind", "mean"), [("rare", 0.1), ("skewed", 2 / 7), ("coin", 0.5)])
def test_the_chance_that_the_mean_is_ever_left_out_is_at_most_alpha(kind: str, mean: float):
    rng = np.random.default_rng(1)

    missed = sum(ever_excludes(drawn(rng, kind), mean, 0.1, (0.0, 1.0)) for _ in range(RUNS))

    assert missed <= 0.1 * RUNS


def test_looking_after_every_value_breaks_an_ordinary_interval_but_not_a_sequence():
    rng = np.random.default_rng(2)
    ordinary = sequence = 0
    for _ in range(RUNS):
        values = rng.choice([-1.0, 0.0, 1.0], TIMES, p=[0.1, 0.8, 0.1])
        n = np.arange(1, TIMES + 1)
        means = np.cumsum(values) / n
        spread = np.sqrt(np.maximum(1e-9, np.cumsum(values**2) / n - means**2) / n)
        ordinary += bool((np.abs(means[20:]) > 1.96 * spread[20:]).any())
        sequence += ever_excludes(values, 0.0, 0.05, (-1.0, 1.0))

    assert ordinary > 0.15 * RUNS
    assert sequence <= 0.05 * RUNS


def test_a_difference_is_found_and_the_interval_holds_it():
    rng = np.random.default_rng(3)
    state = MeanSequence(0.05, (-1.0, 1.0))
    for value in rng.choice([-1.0, 0.0, 1.0], 1500, p=[0.02, 0.8, 0.18]):
        state = state.added(float(value))

    assert state.excludes(0.0)
    interval = state.interval
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    assert 0 < interval.low < 0.16 < interval.high


def test_values_out_of_bounds_are_refused_and_nothing_is_said_before_the_first():
    assert MeanSequence().interval is None
    assert not MeanSequence().excludes(0.0)
    with pytest.raises(ValueError, match="not between"):
        MeanSequence().added(1.5)
