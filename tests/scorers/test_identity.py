"""Names of groups: which words are replaced, and how much they may add to a score."""

import numpy as np
import pytest

from evenhand.core.types import Unscored
from evenhand.scorers.builtin import BuiltinScorer, BuiltinScorerB
from evenhand.scorers.identity import bounded, without_groups


@pytest.mark.parametrize(
    ("text", "anybody"),
    [
        ("a gay teacher and two muslims", "a local teacher and two locals"),
        ("the german's dog", "the local's dog"),
        ("two women , a man and his sister", "two locals , a local and his local"),
        ("a gay black man and some deaf people", "a local and some locals"),
        ("people with an addiction , a person with down syndrome", "locals , a local"),
        ("two asylum seekers and she is in a wheelchair", "two locals and she is local"),
        ("with hiv", None),
        ("it 's late", None),
        ("the train leaves at nine", None),
    ],
)
def test_names_of_groups_give_way_to_words_for_anybody(text: str, anybody: str | None) -> None:
    assert without_groups(text.split()) == (anybody.split() if anybody else None)


@pytest.mark.parametrize(
    ("toxicity", "of_anybody", "lowered_by"),
    [
        (1.0, -3.0, 2.5),  # the name alone made it toxic
        (1.0, 0.5, 0.0),  # hostile whoever is meant
        (-4.0, -5.0, 0.0),
        (-2.0, 1.0, 0.0),  # never raised
    ],
)
def test_what_a_name_adds_is_bounded_for_all_attributes_alike(
    toxicity: float, of_anybody: float, lowered_by: float
) -> None:
    logits, anybody = np.array([toxicity, 0.5, 3.0]), np.array([of_anybody, 9.0, -9.0])

    assert np.allclose(logits - bounded(logits, anybody, 1.5), lowered_by)


@pytest.mark.parametrize("scorer", [BuiltinScorer(), BuiltinScorerB()], ids=lambda scorer: scorer.name)
def test_a_word_for_a_body_is_no_insult_in_odd_grammar_and_an_insult_stays_one(scorer: BuiltinScorer) -> None:
    odd, insult = scorer.score_texts(["no i not obese my sister obese", "You are a stupid obese idiot."])

    assert not isinstance(odd, Unscored)
    assert not isinstance(insult, Unscored)
    assert max(odd.values()) < 0.4
    assert insult["toxicity"] > 0.8
