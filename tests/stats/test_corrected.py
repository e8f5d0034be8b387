"""Corrected estimates: the formulas by hand, the edges, and that clusters widen them. Coverage is in bench/."""

import numpy as np
import pytest

from evenhand.stats import corrected_mean, mean_interval, rogan_gladen


def drawn(seed: int, items: int = 400, rated: int = 80, shift: float = 10.0, noise: float = 5.0):
    """People's ratings, a judge that rates `shift` higher, and the part that people rated."""
    rng = np.random.default_rng(seed)
    people = rng.uniform(10, 60, items)
    judge = people + shift + noise * rng.standard_normal(items)
    known = [float(value) if place < rated else None for place, value in enumerate(people)]
    return people, judge, known


def test_the_correction_is_people_minus_the_weighted_surplus_of_the_judge():
    judge, known = [10.0, 20.0, 30.0, 60.0, 50.0, 40.0, 20.0, 10.0], [12.0, 22.0, 35.0, 58.0, None, None, None, None]

    found = corrected_mean(judge, known)

    assert found.weight is not None
    assert 0 < found.weight <= 1
    assert found.interval.estimate == pytest.approx(127 / 4 - found.weight * (30.0 - 30.0))
    assert (found.interval.n, found.judged) == (4, 8)


def test_a_good_judge_narrows_the_interval_and_its_bias_is_removed():
    people, judge, known = drawn(1)

    found = corrected_mean(judge, known, bounds=(0.0, 100.0)).interval
    alone = mean_interval(people[:80], bounds=(0.0, 100.0))

    assert found.low is not None and found.high is not None and alone.low is not None and alone.high is not None
    assert found.low <= 35 <= found.high
    assert found.high - found.low < 0.7 * (alone.high - alone.low)
    assert judge.mean() > found.high


def test_a_useless_judge_counts_for_nothing():
    people, _, known = drawn(2)
    noise = np.random.default_rng(3).uniform(0, 100, people.size)

    found = corrected_mean(noise, known)

    assert found.weight is not None
    assert found.weight < 0.15
    assert found.interval.estimate == pytest.approx(people[:80].mean(), abs=1.5)


def test_a_judge_that_turns_everything_round_is_not_used():
    people, _, known = drawn(2)

    assert corrected_mean(100 - people, known).weight == 0.0


def test_if_all_items_are_rated_the_judge_is_not_needed():
    people, judge, _ = drawn(4, items=50)

    found = corrected_mean(judge, [float(each) for each in people], bounds=(0.0, 100.0))

    assert found.weight == 0.0
    assert found.interval == mean_interval(people, bounds=(0.0, 100.0))


def test_items_of_one_cluster_do_not_count_as_independent():
    people, judge, known = drawn(5, items=400, rated=400, noise=1)
    order = np.argsort(people)
    people, judge = people[order], judge[order]
    known = [float(value) if place % 4 == 0 else None for place, value in enumerate(people)]
    clusters = [place // 20 for place in range(400)]

    alone, clustered = (corrected_mean(judge, known, each).interval for each in (None, clusters))

    assert None not in (alone.low, alone.high, clustered.low, clustered.high)
    assert clustered.high - clustered.low > 2 * (alone.high - alone.low)  # type: ignore[operator]


def test_a_share_without_an_error_among_the_rated_still_has_an_honest_interval():
    answers = [float(place % 3 == 0) for place in range(600)]
    known = [each if place < 60 else None for place, each in enumerate(answers)]

    found = corrected_mean(answers, known, bounds=(0.0, 1.0)).interval
    by_judge = mean_interval(answers, bounds=(0.0, 1.0))

    assert found.estimate == pytest.approx(1 / 3)
    assert found.high - found.low > 1.2 * (by_judge.high - by_judge.low)  # type: ignore[operator]


def test_no_yes_among_the_rated_is_not_certainty():
    known = [0.0 if place < 50 else None for place in range(1000)]

    found = corrected_mean([0.0] * 1000, known, bounds=(0.0, 1.0)).interval

    assert found.estimate == 0
    assert found.high is not None
    assert found.high == pytest.approx(0.0713, abs=0.002)  # Wilson's limit of 0 of 50, not of 0 of 1,000


@pytest.mark.parametrize("known", [[None, None, None], [], [5.0, None, None]])
def test_too_little_to_say_gives_no_limits(known: list[float | None]):
    found = corrected_mean([1.0, 2.0, 3.0][: len(known)], known).interval

    assert (found.low, found.high) == (None, None)


def test_every_judged_item_needs_a_place():
    with pytest.raises(ValueError, match="a place for each judged item"):
        corrected_mean([1.0, 2.0], [1.0])


def test_rogan_gladen_by_hand():
    # 40 rated yes of which 36 are found, 60 rated no of which 54 are found; the judge says yes to 42 % of all.
    rated = [True] * 40 + [False] * 60
    judged = [True] * 36 + [False] * 4 + [True] * 6 + [False] * 54
    others = [True] * 378 + [False] * 522
    sensitivity, specificity = 37 / 42, 55 / 62

    found = rogan_gladen(judged + others, [*rated, *[None] * 900]).interval

    assert found.estimate == pytest.approx((0.42 + specificity - 1) / (sensitivity + specificity - 1))
    assert found.low is not None and found.high is not None
    assert 0 < found.low < found.estimate < found.high < 1
    assert found.n == 100


@pytest.mark.parametrize(
    ("judged", "rated"),
    [
        ([True, False] * 50, [True] * 20 + [None] * 80),
        ([True, False] * 50, [False] * 20 + [None] * 80),
        ([True, False] * 50, [True, True, False, False] * 25),
        ([False, True] * 50, [True, False] * 50),
    ],
    ids=["all yes", "all no", "at chance", "turned round"],
)
def test_rogan_gladen_is_silent_where_it_cannot_say(judged: list[bool], rated: list[bool | None]):
    assert rogan_gladen(judged, rated).interval.estimate is None


def test_coverage_of_shares_with_fifty_rated_items():
    hits = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        yes = rng.random(500) < 0.3
        judged = np.where(yes, rng.random(500) < 0.9, rng.random(500) > 0.9)
        known = [float(each) if place < 50 else None for place, each in enumerate(yes)]
        found = corrected_mean(judged.astype(float), known, bounds=(0.0, 1.0)).interval
        hits += found.low <= 0.3 <= found.high  # type: ignore[operator]

    assert hits >= 90
