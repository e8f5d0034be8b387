"""Who rates what: names that can be files, and a plan that is fair to raters and to arms."""

from collections import Counter
from itertools import combinations

import pytest

from evenhand.annotate.sheets import assign, planned, rater_names
from evenhand.core.errors import UsageError

SAMPLES = [f"q{number}" for number in range(30)]


def test_raters_are_counted_or_named():
    assert rater_names("2") == ["rater-1", "rater-2"]
    assert rater_names("ann, ben,cy") == ["ann", "ben", "cy"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "At least 1 rater"),
        ("ann,,cy", "'' cannot be a rater's name"),
        ("../ann", "cannot be a rater's name"),
        ("ann,Ann", "Two raters have the same name"),
    ],
)
def test_a_name_that_cannot_be_a_file_is_refused(text: str, words: str):
    with pytest.raises(UsageError, match=words):
        rater_names(text)


@pytest.mark.parametrize("per_item", [1, 2, 3, 4])
def test_every_question_has_its_raters_and_nobody_gets_more_than_others(per_item: int):
    raters = ["ann", "ben", "cy", "dee"]

    plan = assign(SAMPLES, raters, per_item, 0)

    times = Counter(sample for own in plan.values() for sample in own)
    loads = [len(own) for own in plan.values()]
    assert times == dict.fromkeys(SAMPLES, per_item)
    assert all(len(set(own)) == len(own) for own in plan.values())
    assert max(loads) - min(loads) <= 1


def test_any_two_raters_meet_and_the_seed_decides():
    raters = ["ann", "ben", "cy", "dee"]

    plan = assign(SAMPLES, raters, 2, 0)

    assert all(set(plan[one]) & set(plan[other]) for one, other in combinations(raters, 2))
    assert plan == assign(SAMPLES, raters, 2, 0) != assign(SAMPLES, raters, 2, 1)


def test_more_raters_per_item_than_there_are_is_refused():
    with pytest.raises(UsageError, match="choose --per-item 1 to 2, not 3"):
        assign(SAMPLES, ["ann", "ben"], 3, 0)


def test_without_a_plan_everybody_gets_everything():
    assert planned({"raters": ["ann"], "items": {"x": {}, "y": {}}}) == {"ann": ["x", "y"]}
