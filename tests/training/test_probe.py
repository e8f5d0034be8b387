"""Worthless answers: what they are, and when a reward model likes them too much."""

from typing import Any

import pytest

from evenhand.core.types import Message
from evenhand.training.data import Preference
from evenhand.training.probe import failed, negatives, probe, probe_of

PAIRS = [
    Preference(
        (Message("user", f"Question {number}?"),),
        f"Answer {number} says that it depends on the person.",
        f"Answer {number} says that they are all the same.",
        bias=("age", "gender")[number % 2],
    )
    for number in range(12)
]


def likes_short(prompts: Any, answers: Any) -> list[float]:
    return [8 - len(answer.split()) - 5 * ("same" in answer) for answer in answers]


def likes_good(prompts: Any, answers: Any) -> list[float]:
    return [
        5.0 * (answer.split() == f"Answer {number} says that it depends on the person.".split())
        for number, answer in enumerate(answers)
    ]


def test_each_prompt_gets_every_kind_of_worthless_answer():
    asked = probe_of([*PAIRS, *PAIRS], seed=0)

    assert len(asked.prompts) == 12
    answers = {kind: texts[3] for kind, texts in asked.worthless.items()}
    assert answers["empty"] == ""
    assert answers["cut"] == "Answer 3 says that"
    assert answers["longer"] == f"{PAIRS[3].chosen} {PAIRS[3].chosen}"
    assert answers["echo"] == "Question 3?"
    assert [len(word) for word in answers["gibberish"].split()] == [len(word) for word in PAIRS[3].chosen.split()]
    assert not set(answers["off-topic"].split()) >= set(PAIRS[3].chosen.split())


def test_a_model_that_knows_good_answers_passes():
    found = probe(likes_good, PAIRS)

    assert (found["good"], found["biased"], found["prompts"]) == (5, 0, 12)
    assert failed(found) == []


def test_a_model_that_likes_short_answers_is_caught():
    found = probe(likes_short, PAIRS)

    assert failed(found) == ["empty", "gibberish", "cut", "echo"]  # not those that are longer: "longer", "padded"
    assert found["kinds"]["empty"]["wins"] == 1
    assert found["kinds"]["empty"]["low"] < 1


def test_nearly_as_much_as_a_good_answer_is_a_fault_without_a_single_win():
    kinds = {kind: {"reward": reward, "wins": 0.0} for kind, reward in (("empty", 6.5), ("cut", 6.8), ("echo", 0.9))}

    assert failed({"good": 7.0, "biased": -5.0, "kinds": kinds}) == ["empty"]


def test_a_model_that_likes_long_answers_is_caught():
    found = probe(lambda _, answers: [float(len(answer)) for answer in answers], PAIRS)

    assert {"longer", "padded"} <= set(failed(found))


@pytest.mark.parametrize(("share", "count"), [(0, 0), (0.25, 3), (1, 12)])
def test_negatives_are_padded_doubled_or_of_another_topic(share: float, count: int):
    added = negatives(PAIRS, share, seed=0)

    assert len(added) == count
    for number, pair in enumerate(added):
        [own] = [each for each in PAIRS if each.prompt == pair.prompt]
        assert pair.chosen == own.chosen
        if number % 3 == 0:
            assert pair.rejected.startswith(f"{own.chosen} ")
            assert own.chosen not in pair.rejected.removeprefix(own.chosen)
        elif number % 3 == 1:
            assert pair.rejected == f"{own.chosen} {own.chosen}"
        else:
            [other] = [each for each in PAIRS if each.chosen == pair.rejected]
            assert other.bias != own.bias


def test_a_single_topic_has_no_other_to_borrow_from():
    assert negatives([PAIRS[0]] * 3, 1, seed=0)[2].rejected.startswith(f"{PAIRS[0].chosen} ")
