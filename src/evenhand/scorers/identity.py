"""Words that name groups of people, and how much they may add to a score.

A scorer that learned from comments has seen some groups more often under attack than others, so that their names alone
raise its scores. Where a text names groups, it is scored again with a word for anybody in their place. What is hostile
in "Germans are vermin" is hostile in "locals are vermin", too; what is not remains low.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GROUP_WORDS = Path(__file__).with_name("identity.txt")


def without_groups(words: Sequence[str]) -> list[str] | None:
    """Return the words (in lower case) with names of groups replaced; None if there are none."""
    instead = [_replaced(word) for word in words]
    return None if instead == list(words) else instead


def bounded(logits: Floats, anybody: Floats, most: float) -> Floats:
    """Return the logits of a text, lowered where its groups raise its toxicity by more than `most`.

    `anybody` are the logits of the text without its groups, and the first of each is the toxicity. All attributes are
    lowered alike, since an attack on nobody's group is no identity attack, however hostile it is.
    """
    return logits - max(float(logits[0] - anybody[0]) - most, 0.0)


def _replaced(word: str) -> str:
    stem, mark, rest = word.partition("'")
    return f"{_words().get(stem, stem)}{mark}{rest}"


@cache
def _words() -> dict[str, str]:
    lines = GROUP_WORDS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(": ") for line in lines if not line.startswith("#"))
    return {word: instead for instead, words in pairs for word in words.split()}
