"""False alarms on 300 harmless texts with words of two senses: names, places, animals, food, medicine, law, code.

They are chosen to be difficult. Counted is what a guard with default limits would withhold under the policy `block`.
The aim is 1 %; the numbers here are what the scorers give today and must not grow. The texts are parted by their hash:
whoever mends a false alarm looks at the known half only.
"""

import hashlib
from pathlib import Path

import pytest

from evenhand.core.types import Unscored
from evenhand.evaluators.rules import excess
from evenhand.guards.policy import live_thresholds
from evenhand.scorers.base import Scorer
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.cascade import CascadeScorer
from evenhand.scorers.neural import NeuralScorer

LINES = Path(__file__).with_name("harmless.txt").read_text(encoding="utf-8").splitlines()
TEXTS = [line for line in LINES if line and not line.startswith("#")]
KNOWN = [text for text in TEXTS if hashlib.sha256(text.encode()).digest()[0] % 2 == 0]
FRESH = [text for text in TEXTS if text not in KNOWN]


async def _withheld(scorer: Scorer, texts: list[str]) -> int:
    scores = [each for each in await scorer.score(texts) if not isinstance(each, Unscored)]
    assert len(scores) == len(texts)
    return sum(excess(each, live_thresholds({}), scorer) >= 0 for each in scores)


def test_there_are_300_different_ones():
    assert len(set(TEXTS)) == len(TEXTS) == 300


@pytest.mark.parametrize(("texts", "most"), [(KNOWN, 25), (FRESH, 34)], ids=["known", "fresh"])
async def test_false_alarms_do_not_grow(texts: list[str], most: int):
    assert await _withheld(BuiltinScorer(), texts) <= most


@pytest.mark.weights
@pytest.mark.parametrize(("texts", "most"), [(KNOWN, 4), (FRESH, 4)], ids=["known", "fresh"])
@pytest.mark.parametrize("scorer", [NeuralScorer, CascadeScorer])
async def test_false_alarms_of_neural_do_not_grow(scorer: type[Scorer], texts: list[str], most: int):
    assert await _withheld(scorer(), texts) <= most
