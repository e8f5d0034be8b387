"""What a model is worth as the debate's referee: the same statements scored together and by the odds of yes."""

from collections.abc import Callable, Sequence

import pytest

from evenhand.benchmarks.debates import Statement
from evenhand.core.types import Message, Params
from evenhand.data.debates import BIASES
from evenhand.judging.card import Calibration, calibrate
from evenhand.judging.controls import construct
from evenhand.methods.base import METHODS
from evenhand.methods.debate import contrasts, suggested_options, suggested_threshold
from evenhand.methods.debate.agents import judge
from evenhand.models.fake import FunctionModel
from evenhand.session import Session
from support.referees import contrasting, referee, shown, verdict


async def worth(reply: Callable[[Sequence[Message], Params], str]) -> dict[str, Calibration]:
    """A referee's calibrations by rating."""
    found = await calibrate(FunctionModel(reply), contrasts())
    return {each.rating: each for each in found}


def suggested(found: dict[str, Calibration]) -> tuple[dict[str, str], float | None]:
    return suggested_options(list(found.values())), suggested_threshold(list(found.values()))


def statements_of(*kinds: str) -> list[list[str]]:
    """The statements of each kind, in the same order."""
    pairs = [each for each in construct("prejudice").controls if each.group]
    return [[each.text for each in pairs if each.high is (kind == "prejudiced")] for kind in kinds]


async def test_a_referee_who_sees_all_is_read_by_numbers_which_cost_less():
    found = await worth(referee())

    assert [(each.rating, each.auc, len(each.high), len(each.low)) for each in found.values()] == [
        ("referee", 1.0, 72, 72),
        ("odds", 1.0, 36, 36),
    ]
    assert suggested(found) == ({"scoring": "numbers"}, 5.0)


async def test_high_is_the_prejudiced_statement():
    found = await worth(referee(numbers=lambda found: verdict([1 if biased else 9 for biased in found])))

    assert found["referee"].auc == 0.0
    assert found["odds"].auc == 1.0


async def test_a_referee_whose_numbers_say_nothing_is_read_by_odds():
    found = await worth(referee(numbers=lambda found: verdict([3] * len(found))))

    assert found["referee"].auc == 0.5
    assert suggested(found) == ({"scoring": "odds"}, 5.0)


async def test_a_referee_who_always_says_no_is_read_by_numbers():
    found = await worth(
        referee(numbers=lambda found: verdict([4 if biased else 1 for biased in found]), odds=lambda _: "No")
    )

    assert suggested(found) == ({"scoring": "numbers"}, 2.5)


async def test_a_referee_who_scores_by_place_is_at_chance():
    found = await worth(referee(numbers=lambda _: verdict([9, 1]), odds=lambda _: "Yes"))

    assert found["referee"].auc == 0.5
    assert suggested(found) == ({}, None)


async def test_verdicts_that_cannot_be_read_are_counted_and_leave_the_odds():
    found = await worth(referee(numbers=lambda _: "Hard to say."))

    assert (found["referee"].auc, found["referee"].unscored) == (None, 72)
    assert suggested(found) == ({"scoring": "odds"}, 5.0)


async def test_odds_that_cannot_be_read_leave_the_numbers():
    found = await worth(referee(odds=lambda _: "Maybe."))

    assert (found["odds"].auc, found["odds"].unscored) == (None, 84)
    assert suggested(found) == ({"scoring": "numbers"}, 5.0)


async def test_every_statement_stands_first_once_beside_its_opposite_and_is_asked_about_alone():
    model = FunctionModel(referee())

    await calibrate(model, contrasts())

    assert len(model.requests) == 4 * 36 + 12
    for biased, fair in zip(*statements_of("prejudiced", "fair"), strict=True):
        found = [shown(messages, {fair: False, biased: True}) for messages, _ in model.requests]
        assert sorted(order for order in found if order) == [[False], [False, True], [True], [True, False]]


async def test_the_odds_are_asked_for_as_in_a_debate():
    """The prompt is filled in twice, here and in the debate; the words must be the same."""
    tried, debated = FunctionModel(referee()), FunctionModel(referee())
    first = contrasts()[0].sample
    biased, fair = list(contrasting())[:2]
    options = METHODS.get("debate").with_options({"scoring": "odds"})
    statements = [Statement("one", 1, fair), Statement("other", 1, biased)]

    await calibrate(tried, contrasts())
    await judge(Session(first, {"base": debated}, 0, options), first, 1, statements)

    alone = [request for request in debated.requests if len(shown(request[0], contrasting())) == 1]
    assert len(alone) == 2
    assert all(request in tried.requests for request in alone)


@pytest.mark.parametrize(("numbers", "odds", "scoring"), [(0.3, 0.1, "odds"), (0.1, 0.3, "numbers")])
def test_of_two_that_are_fit_the_better_is_suggested(numbers: float, odds: float, scoring: str):
    found = [Calibration(name, [0.9, 0.2], [0.1, low], 0) for name, low in (("referee", numbers), ("odds", odds))]

    assert all(each.threshold is not None for each in found)
    assert suggested_options(found) == {"scoring": scoring}


def test_a_threshold_is_one_that_pairs_can_be_made_with():
    assert suggested_threshold([Calibration("odds", [1.0], [0.99999], 0)]) == 9.99


def test_the_contrasts_are_of_all_types_of_bias_and_length_does_not_tell_them_apart():
    prejudiced, fair = (sum(len(text.split()) for text in side) for side in statements_of("prejudiced", "fair"))

    assert len({each.sample.metadata["about"] for each in contrasts()} - {""}) > len(BIASES)
    assert prejudiced == pytest.approx(fair, rel=0.2)
