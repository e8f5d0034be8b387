"""Controls and what they find: judges with planted faults, and texts that hold what they promise."""

import random
from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from evenhand.judging.card import calibrate
from evenhand.judging.certificate import certificate_of, certified
from evenhand.judging.controls import LONG, NONSENSE, REFUSAL, SHORT, Control, construct
from evenhand.judging.instruments import check_scorer
from evenhand.judging.scorers import OpinionScorer, QualityScorer, RefusalScorer
from evenhand.methods.stardtox import contrasts
from evenhand.models.fake import FunctionModel
from evenhand.stats import auc_interval
from support.judges import CONSTRUCTS, FAULTY, rated, seeing


async def certificate(judging, attribute="bias"):
    model = FunctionModel(judging)
    checked = await check_scorer(OpinionScorer(model), model, [attribute], ["written"])
    [found] = checked.certificates
    return found


async def test_a_judge_that_sees_may_be_believed():
    found = await certificate(seeing)

    assert found.sees
    assert (found.auc.estimate, found.middle) == (1.0, (0.1, 0.9))
    assert found.auc.low is not None
    assert 0.85 < found.auc.low < 1
    assert {found.kinds[REFUSAL], found.kinds[NONSENSE]} == {0.1}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("blind", "does not see it (AUC 0."),
        ("floor", "is at the floor of its scale (6 of 100 where it is high)"),
        ("ceiling", "is at the ceiling of its scale (94 of 100 where it is low)"),
        ("nonsense", "rates nonsense like texts that have it (90 of 100)"),
        ("refusals", "rates refusals like texts that have it (90 of 100)"),
        ("length", "rates longer texts higher whatever they say (AUC 1.00)"),
    ],
)
async def test_a_planted_fault_is_found(fault: str, said: str):
    found = await certificate(FAULTY[fault])

    assert not found.sees
    assert any(each.startswith(said) for each in found.faults), found.faults
    assert found.untold.startswith("the judge ")


async def test_a_judge_that_cannot_be_read_sees_nothing():
    found = await certificate(lambda *_: "It is fine.")

    assert found.untold == f"the judge gives no rating that can be read in {found.unread} of {found.unread} replies"


async def test_a_threshold_that_no_rating_crosses_is_a_fault():
    from dataclasses import replace

    found = replace(await certificate(seeing), threshold=0.95)

    assert found.faults == ["never crosses the threshold of 95 (it rates 10 to 90)"]


async def test_the_reading_that_sees_more_is_chosen_by_one_half_and_measured_on_the_other():
    def only_by_questions(messages, params):
        return seeing(messages, params) if "Yes or No" in messages[-1].content else FAULTY["blind"](messages, params)

    model = FunctionModel(only_by_questions)
    checked = await check_scorer(OpinionScorer(model), model, ["bias"], ["written", "odds"])
    [found] = checked.certificates

    assert (found.reading, found.auc.estimate, found.sees) == ("odds", 1.0, True)
    assert found.auc.n == 36
    assert set(checked.tried["opinion.bias"]) == {"written", "odds"}


async def test_what_one_reading_cannot_read_says_nothing_against_another():
    def wordy(messages, params):
        return "Let me think." if "Yes or No" in messages[-1].content else seeing(messages, params)

    model = FunctionModel(wordy)
    checked = await check_scorer(OpinionScorer(model), model, ["bias"], ["written", "odds"])
    [found] = checked.certificates

    assert (found.reading, found.unread, found.faults) == ("written", 0, [])
    assert checked.tried["opinion.bias"]["odds"].unreadable


async def test_a_reading_that_can_rarely_be_read_is_not_the_best_one():
    def rarely(messages, params):
        known = rated(messages)
        if known is None or ("Yes or No" in messages[-1].content and len(known[1].text) % 3):
            return "Let me think."
        noisy = "Yes or No" not in messages[-1].content and len(known[1].text) % 2 == 0
        return (FAULTY["blind"] if noisy else seeing)(messages, params)

    model = FunctionModel(rarely)
    checked = await check_scorer(OpinionScorer(model), model, ["bias"], ["written", "odds"])
    tried = checked.tried["opinion.bias"]

    assert (tried["odds"].tuned or 0) > (tried["written"].tuned or 0)
    assert checked.certificates[0].reading == "written"


async def test_too_few_texts_do_not_show_that_a_judge_is_blind():
    model = FunctionModel(seeing)
    checked = await check_scorer(OpinionScorer(model), model, ["bias"], ["written"], limit=2)

    [fault] = checked.certificates[0].faults
    assert fault.startswith("is not shown to see it (AUC 1.00 [0.")


def test_one_question_with_all_high_texts_has_an_interval():
    found = auc_interval([0.9, 0.8], [0.1, 0.2, 0.3], (["a", "a"], ["a", "b", "c"]))

    assert found.estimate == 1
    assert found.low is not None and found.low < 0.9


@pytest.mark.parametrize(("scorer", "attributes"), [(QualityScorer, 3), (OpinionScorer, 3), (RefusalScorer, 1)])
async def test_every_rating_of_a_scorer_has_controls_that_a_seeing_judge_passes(scorer, attributes: int):
    model = FunctionModel(seeing)
    checked = await check_scorer(scorer(model), model, None, ["written"])

    assert len(checked.certificates) == attributes
    assert [each.faults for each in checked.certificates] == [[]] * attributes
    assert all(len(each.high) >= 30 and len(each.low) >= 30 for each in checked.calibrations)


async def test_a_certificate_is_stored_and_read_again():
    found = await certificate(FAULTY["blind"])

    assert certificate_of(found.note()) == found


async def test_refusals_and_nonsense_are_left_out_before_rating_and_said():
    model = FunctionModel(seeing)
    answers = ["I'm sorry, but I can't help with that.", "the the the and and the of of the the and the", ""]

    found = await OpinionScorer(model).score(answers, ["Who is a good neighbour?"] * 3)

    assert [each.reason for each in found] == ["a refusal", "the same words over and over", "empty text"]
    assert model.requests == []


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_controls_are_as_many_as_promised_and_alike_in_length(name: str):
    sides = {
        side: [each for each in construct(name).controls if each.high is side and each.kind not in (LONG, SHORT)]
        for side in (True, False)
    }
    texts = [(each.context, each.text) for each in construct(name).controls]

    assert all(len(each) >= 30 for each in sides.values())
    assert len(texts) == len(set(texts))
    high, low = (fmean(each.words for each in side) for side in sides.values())
    assert 0.85 < high / low < 1.18
    for side in sides.values():
        assert 0.4 <= fmean(each.held_out for each in side) <= 0.6


def test_prejudice_is_balanced_over_groups_mild_and_open_and_halves():
    counted = Counter((each.group, each.kind, each.held_out) for each in construct("prejudice").controls if each.group)

    assert len({group for group, _, _ in counted}) == 9
    assert {kind: {n for (_, k, _), n in counted.items() if k == kind} for kind in ("mild", "open", "low")} == {
        "mild": {1},
        "open": {1},
        "low": {2},
    }


def test_a_pair_differs_in_more_than_a_keyword():
    by_question: dict[str, list[Control]] = {}
    for each in construct("prejudice").controls:
        if each.group:
            by_question.setdefault(each.context, []).append(each)
    for one, other in by_question.values():
        first, second = (set(each.text.lower().split()) for each in (one, other))
        assert len(first & second) < 0.5 * len(first | second)


@pytest.mark.parametrize(
    ("high", "low", "estimate", "bounds"),
    [
        ([1.0] * 30, [0.0] * 30, 1.0, (0.93, 1.0)),
        ([0.5] * 30, [0.5] * 30, 0.5, (0.36, 0.64)),
        ([], [0.0], None, (None, None)),
    ],
)
def test_the_interval_of_an_auc_is_sensible_where_it_is_1(high, low, estimate, bounds):
    found = auc_interval(high, low)

    assert found.estimate == estimate
    assert (found.low, found.high) == (
        pytest.approx(bounds[0], abs=0.03) if bounds[0] is not None else None,
        pytest.approx(bounds[1], abs=0.03) if bounds[1] is not None else None,
    )


def test_the_interval_of_an_auc_contains_it_though_texts_share_questions():
    rng = random.Random(0)
    questions = list(range(30)) * 3
    missed = {True: 0, False: 0}
    for _ in range(100):
        high, low = ([rng.gauss(0, 1) for _ in range(30)] for _ in range(2))
        for clustered in missed:
            # Every text is rated three times alike.
            found = auc_interval(high * 3, low * 3, (questions, questions) if clustered else None)
            missed[clustered] += not found.includes(0.5)

    assert missed[True] <= 9
    assert missed[False] >= 18


async def test_texts_that_were_rated_twice_are_not_twice_as_many():
    once = (await calibrate(FunctionModel(seeing), contrasts()))[0]
    twice = replace(once, texts=[*once.texts, *once.texts])

    assert certified(twice, "judge").auc.low == pytest.approx(certified(once, "judge").auc.low)
