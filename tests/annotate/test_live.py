"""The owner's figures, from ratings whose truth is known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from evenhand.annotate.journal import Rating
from evenhand.annotate.pages import Drift, Precision, Standing, standing
from evenhand.annotate.sheets import planned

SCALES = ("BS", "CE", "LS")


def make_key(questions: int, raters: Sequence[str] = ("ann", "ben", "cy"), arms: Sequence[str] = ("a", "b")) -> Any:
    items = {
        f"{arm}{number}": {"arm": arm, "sample": f"q{number}", "cluster": f"t{number}"}
        for number in range(questions)
        for arm in arms
    }
    return {"raters": list(raters), "arms": list(arms), "baseline": arms[0], "samples": questions, "items": items}


def rated(key: Any, rate: Callable[[str, str, int], int | None], seed: int = 0) -> list[Rating]:
    """Everybody rates everything in an order of their own; `rate` gets rater, item and the place in their order."""
    draws = np.random.default_rng(seed)
    ratings: list[Rating] = []
    for rater, own in planned(key).items():
        for place, number in enumerate(draws.permutation(len(own)).tolist()):
            item = own[number]
            ratings += [Rating(rater, item, scale, rate(rater, item, place), 20.0 * place) for scale in SCALES]
    return sorted(ratings, key=lambda each: each.at)


def drift_of(found: Standing, rater: str) -> Drift:
    return next(each for each in found.drift if (each.rater, each.scale) == (rater, "BS"))


def precision_of(found: Standing) -> Precision:
    return next(each for each in found.precision if each.scale == "BS")


def test_nothing_is_said_before_anybody_rates():
    found = standing(make_key(4), [], 5.0)

    assert [(each.done, each.planned, each.last) for each in found.progress] == [(0, 8, None)] * 3
    assert {each.fleiss.estimate for each in found.agreement} == {None}
    assert {each.alpha.estimate for each in found.agreement} == {None}
    assert {each.half_width for each in found.precision} == {None}
    assert {each.verdict for each in found.drift} == {"too early: 0 of 16 questions shared with others"}


def test_progress_counts_answers_with_all_scales():
    key = make_key(4)
    ratings = [Rating("ann", "a0", scale, 50, 10.0) for scale in SCALES]
    ratings += [Rating("ann", "b0", "BS", None, 30.0), Rating("ann", "b0", "CE", 70, 31.0)]
    ratings += [Rating("ann", "a1", scale, 50, 40.0) for scale in SCALES]
    ratings += [Rating("ann", "a2", scale, 50, 5000.0) for scale in SCALES]  # after a break

    ann = standing(key, ratings, 5.0).progress[0]

    assert (ann.done, ann.planned, ann.cannot_tell, ann.seconds, ann.last) == (3, 8, 1, 30.0, 5000.0)


def test_equal_ratings_agree_fully():
    key = make_key(20)

    found = standing(key, rated(key, lambda _rater, item, _place: 20 if item.startswith("a") else 80), 5.0)

    for each in found.agreement:
        assert (each.fleiss.estimate, each.fleiss.n) == (1, 40)
        assert (each.alpha.estimate, each.alpha.n) == (1, 40)
    assert [(pair.raters, pair.kappa["BS"].estimate) for pair in found.pairs] == [
        (("ann", "ben"), 1),
        (("ann", "cy"), 1),
        (("ben", "cy"), 1),
    ]
    assert {each.verdict for each in found.drift} == {"no drift seen"}


def test_fleiss_waits_for_all_planned_raters_and_alpha_does_not():
    key = make_key(20)
    ratings = rated(key, lambda _rater, item, _place: 20 if item.startswith("a") else 80)
    ratings = [each for each in ratings if each.rater != "cy" or each.item in ("a0", "b0")]

    agreement = standing(key, ratings, 5.0).agreement[0]

    assert (agreement.fleiss.n, agreement.alpha.n) == (2, 40)


def test_who_cannot_tell_is_left_out():
    key = make_key(20)
    ratings = rated(key, lambda rater, item, _place: None if rater == "cy" else 20 if item.startswith("a") else 80)

    found = standing(key, ratings, 5.0)

    assert (found.agreement[0].fleiss.n, found.agreement[0].alpha.n) == (0, 40)
    assert found.pairs[1].kappa["BS"].n == 0


def noisy(seed: int, late: Callable[[str, int, int], int]) -> Callable[[str, str, int], int]:
    """Arm a is rated about 20, arm b about 80, in steps of ten; `late` may change the value of a rater later on."""
    draws = np.random.default_rng(seed)

    def rate(rater: str, item: str, place: int) -> int:
        value = (20 if item.startswith("a") else 80) + int(draws.choice([-10, 0, 0, 10]))
        return late(rater, place, value)

    return rate


def test_a_rater_who_gets_stricter_is_seen_and_the_others_are_not():
    key = make_key(40)
    ratings = rated(key, noisy(1, lambda rater, place, value: value + 20 * (rater == "cy" and place >= 40)))

    found = standing(key, ratings, 5.0)

    assert "rates higher than at first" in drift_of(found, "cy").verdict
    assert drift_of(found, "cy").shift.estimate == pytest.approx(20, abs=4)
    assert "higher" not in drift_of(found, "ann").verdict


def test_a_rater_who_starts_to_guess_is_seen():
    key = make_key(40)
    draws = np.random.default_rng(3)
    ratings = rated(
        key,
        noisy(
            2, lambda rater, place, value: int(draws.choice([0, 50, 100])) if rater == "cy" and place > 40 else value
        ),
    )

    found = standing(key, ratings, 5.0)

    assert "agrees less than at first" in drift_of(found, "cy").verdict
    course = drift_of(found, "cy").course
    assert len(course) == 10
    assert course[0] > 0.9
    assert course[-1] < 0.6


def test_steady_raters_rarely_seem_to_drift():
    """The level is of the whole study: at most one study in twenty names anybody."""
    key = make_key(20)
    alarms = 0
    for seed in range(25):
        found = standing(key, rated(key, noisy(seed, lambda _rater, _place, value: value), seed), 5.0)
        alarms += any(each.verdict != "no drift seen" for each in found.drift)

    assert alarms <= 4  # P(more than 4 of 25) is under 1 % at a level of 5 %


def test_the_number_of_ratings_still_needed_is_right():
    """A second study of the predicted size reaches the wanted precision, give or take the luck of its spread."""
    draws = np.random.default_rng(4)
    spread: dict[str, int] = {}

    def rate(_rater: str, item: str, _place: int) -> int:
        return spread.setdefault(item, int(draws.integers(0, 11)) * 10)

    first = make_key(300, raters=("ann",))
    now = precision_of(standing(first, rated(first, rate), 3.0))
    assert now.needed is not None
    assert now.half_width is not None
    spread.clear()
    later = make_key(now.needed, raters=("ann",))
    then = precision_of(standing(later, rated(later, rate), 3.0))

    assert now.half_width > 4.5
    assert then.half_width == pytest.approx(3.0, rel=0.1)
    # Every question has two answers, of which each is one rating.
    assert (now.questions, now.more, now.beyond) == (300, (now.needed - 300) * 2, (now.needed - 300) * 2)


def test_what_is_missing_counts_only_what_is_not_rated():
    key = make_key(60)
    ratings = rated(key, noisy(5, lambda _rater, _place, value: value))
    part = [each for each in ratings if int(each.item[1:]) < 20]

    now = precision_of(standing(key, part, 2.0))
    wide = precision_of(standing(key, part, 40.0))

    assert (now.questions, now.beyond) == (20, 0)
    assert now.more == (now.needed - 20) * 6 > 0
    assert (wide.more, wide.beyond) == (0, 0)


def test_a_single_arm_is_measured_itself():
    key = make_key(20, arms=("a",))

    found = standing(key, rated(key, noisy(6, lambda _rater, _place, value: value)), 5.0)

    assert [(each.scale, each.arm) for each in found.precision] == [(scale, "a") for scale in SCALES]
