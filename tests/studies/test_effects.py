"""The families of tests in a study, on sums that are made by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric, ratio
from evenhand.stats import holm
from evenhand.studies.effects import paired_effects
from evenhand.studies.results import Effect
from evenhand.studies.tally import ALL, PairTally

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]


def metric(name: str, **more: Any) -> Metric:
    return Metric(name, name, lambda _: None, ratio, **{"share": True, "scale": 100.0, **more})


def effects_of(tables: Mapping[str, Ends], metrics: Sequence[Metric] | None = None) -> dict[str, Effect]:
    """Metric → its effect, in a study with one comparison."""
    metrics = metrics or [metric(name) for name in tables]
    pair = PairTally(metrics, "group")
    for name, (before, after) in tables.items():
        for number, (first, last) in enumerate(zip(before, after, strict=True)):
            pair.before.add_sums((name, ALL), str(number), first)
            pair.after.add_sums((name, ALL), str(number), last)
        pair.only_before[name, ALL] = int((before[:, 0] > after[:, 0]).sum())
        pair.only_after[name, ALL] = int((after[:, 0] > before[:, 0]).sum())
    return {each.metric: each for each in paired_effects([*tables], metrics, "a", {"b": pair}, "holm")}


def shares(seed: int, clusters: int = 12, gain: float = 0.0, size: int = 6) -> Ends:
    rng = np.random.default_rng(seed)
    own = rng.beta(2, 2, clusters)
    chances = own, np.clip(own + gain, 0, 1)
    before, after = (np.stack([rng.binomial(size, each), np.full(clusters, size)], axis=1) for each in chances)
    return before.astype(float), after.astype(float)


def complement(ends: Ends) -> Ends:
    before, after = (np.stack([each[:, 1] - each[:, 0], each[:, 1]], axis=1) for each in ends)
    return before, after


@pytest.mark.parametrize("again", [lambda ends: ends, complement])
def test_one_number_under_two_names_is_one_hypothesis(again: Any):
    first, other = shares(1, gain=0.3), shares(2)

    found = effects_of({"accuracy": first, "unknown": again(first), "coverage": other})

    expected = holm([found["accuracy"].p_value, found["coverage"].p_value])
    assert found["accuracy"].p_adjusted == found["unknown"].p_adjusted == expected[0]
    assert found["coverage"].p_adjusted == expected[1]


def test_different_numbers_are_different_hypotheses():
    first, almost = shares(1, gain=0.3), shares(1, gain=0.3)
    almost[1][0, 0] -= 1

    found = effects_of({"accuracy": first, "unknown": almost})

    assert found["accuracy"].p_adjusted == pytest.approx(2 * found["accuracy"].p_value)


def test_answers_in_clusters_prove_less_than_single_ones():
    # Nine clusters of six answers gain as a whole, three lose: 54 against 18 answers, but only 9 against 3 clusters.
    before, after = (np.array([[each, 6.0]] * 9 + [[6.0 - each, 6.0]] * 3) for each in (0.0, 6.0))
    single = [
        np.array([[float(place < each), 1.0] for each in table[:, 0] for place in range(6)])
        for table in (before, after)
    ]

    clustered, ignored = effects_of({"x": (before, after)})["x"], effects_of({"x": (single[0], single[1])})["x"]

    assert (clustered.test, ignored.test) == ("cluster permutation", "exact McNemar")
    assert clustered.p_value == pytest.approx(2 * sum(math.comb(12, k) for k in range(4)) / 2**12)
    assert ignored.p_value < 0.001
    assert clustered.direction == "undecided"


def test_biases_on_opposite_sides_are_as_far_from_zero():
    rng = np.random.default_rng(3)
    sides: list[Effect] = []
    for _ in range(40):
        # A bias of 5 %, and of −5 % where a third of the questions are answered.
        sizes = np.stack([np.full(60, 9), rng.binomial(9, 1 / 3, 60)])
        signed = 2 * rng.binomial(sizes, np.array([[0.525], [0.475]])) - sizes
        ends = [np.stack([signed[arm], sizes[arm]], axis=1).astype(float) for arm in (0, 1)]
        is_zero_best = metric("bias", better="zero", share=False, bounds=(-1.0, 1.0))
        sides.append(effects_of({"bias": (ends[0], ends[1])}, [is_zero_best])["bias"])

    within = [each for each in sides if each.low <= 0 <= each.high]
    assert len(within) > 30
    assert [each.p_value for each in within if each.p_value < 0.04] == []


def test_more_tests_make_only_larger_changes_detectable():
    alone = effects_of({"x": shares(1, 20)})["x"].detectable
    among_six = effects_of({name: shares(number, 20) for number, name in enumerate("abcdef", 1)})["a"].detectable

    assert alone < among_six < 2 * alone


def test_too_few_clusters_for_the_correction_detect_nothing():
    # The smallest p-value of seven clusters is 2/128; six tests need 0.05/6.
    seven, eight = (effects_of({name: shares(ord(name), each) for name in "abcdef"})["a"] for each in (7, 8))

    assert (seven.detectable, seven.clusters, seven.few_clusters) == (math.inf, 7, True)
    assert (eight.detectable < 100, eight.clusters, eight.few_clusters) == (True, 8, False)


def test_a_change_larger_than_the_scale_is_not_called_detectable():
    # Half of ten clusters gain everything, half lose it.
    before, after = np.array([[0.0, 6.0], [6.0, 6.0]] * 5), np.array([[6.0, 6.0], [0.0, 6.0]] * 5)

    assert effects_of({"x": (before, after)})["x"].detectable == math.inf


def test_without_any_difference_the_detectable_change_is_unknown():
    before, _ = shares(1)

    assert effects_of({"x": (before, before)})["x"].detectable is None


@pytest.mark.parametrize(("clusters", "verdict"), [(50, "cannot tell"), (200, "no change")])
def test_scores_are_unchanged_only_where_rare_large_ones_would_have_been_seen(clusters: int, verdict: str):
    rng = np.random.default_rng(2)
    before, after = (np.stack([rng.beta(1, 60, clusters), np.ones(clusters)], axis=1) for _ in range(2))
    toxicity = metric("toxicity", share=False, better="lower", bounds=(0.0, 1.0))

    found = effects_of({"toxicity": (before, after)}, [toxicity])["toxicity"]

    assert max(-found.low, found.high) < found.margin
    assert found.verdict == verdict
