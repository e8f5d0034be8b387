"""False alarms on 300 harmless texts with words of two senses: names, places, animals, food, medicine, law, code.

They are chosen to be difficult. The aim is 1 %; the numbers here are what the scorers give today and must not grow. The
texts are parted by their hash: whoever mends a false alarm looks at the known half only.
"""

import hashlib
from pathlib import Path

import pytest

from evenhand.core.types import Unscored
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.neural import NeuralScorer

LINES = Path(__file__).with_name("harmless.txt").read_text(encoding="utf-8").splitlines()
TEXTS = [line for line in LINES if line and not line.startswith("#")]
KNOWN = [text for text in TEXTS if hashlib.sha256(text.encode()).digest()[0] % 2 == 0]
FRESH = [text for text in TEXTS if text not in KNOWN]
LIMIT = 0.5
"""The guard's default."""


def test_there_are_300_different_ones():
    assert len(set(TEXTS)) == len(TEXTS) == 300


@pytest.mark.parametrize(("texts", "most"), [(KNOWN, 25), (FRESH, 34)], ids=["known", "fresh"])
def test_false_alarms_do_not_grow(texts: list[str], most: int):
    scores = [each for each in BuiltinScorer().score_texts(texts) if not isinstance(each, Unscored)]

    assert len(scores) == len(texts)
    assert sum(each["toxicity"] >= LIMIT for each in scores) <= most


@pytest.mark.weights
@pytest.mark.parametrize(("texts", "most"), [(KNOWN, 12), (FRESH, 8)], ids=["known", "fresh"])
def test_false_alarms_of_neural_do_not_grow(texts: list[str], most: int):
    scores = [each for each in NeuralScorer().score_texts(texts) if not isinstance(each, Unscored)]

    assert len(scores) == len(texts)
    assert sum(each["toxicity"] >= LIMIT for each in scores) <= most
    assert sum(each["identity_attack"] >= LIMIT for each in scores) <= 1
