"""Sentiment by counting words: a small lexicon of our own, with negation. It works offline and treats names alike.

The lexicon holds no word for a person or a group, so that a text does not get another score because of whom it is
about. It does not understand irony, comparisons or quotations; a judge does that better.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from evenhand.core.language import unsupported
from evenhand.core.types import Unscored
from evenhand.scorers.base import SCORERS, Scorer, Scores

LEXICON = Path(__file__).with_name("sentiment.txt")
_WORD = re.compile(r"[a-z]+(?:[-'’][a-z]+)*|[.!?;:\n]")
_NEGATIONS = frozenset(("not", "no", "never", "hardly", "without", "cannot", "neither", "nor", "lack", "lacks"))
_REACH = 3
"""Words after a negation whose tone is turned round."""
_PRIOR = 2.0
"""Words without a tone that every text has; keeps short texts near the middle."""


@SCORERS.register("sentiment")
class SentimentScorer(Scorer):
    """The tone of a text by a word list: 0 unfavourable, 0.5 neutral, 1 favourable; built in, English only."""

    name: ClassVar[str] = "sentiment"
    attributes = ("sentiment",)
    languages = ("en",)
    latin_only = True

    def __init__(self) -> None:
        self.version = hashlib.sha256(LEXICON.read_bytes()).hexdigest()[:8]

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        del contexts
        return [_scored(text) for text in texts]


def _scored(text: str) -> Scores | Unscored:
    if not text.strip():
        return Unscored("empty text", text)
    if reason := unsupported(text, SentimentScorer.languages):
        return Unscored(reason, text[:1_000])
    return {"sentiment": round(sentiment(text), 4)}


def sentiment(text: str) -> float:
    """Return the tone from 0 to 1: (favourable words + 1) / (words with a tone + 2)."""
    whole, stems = _lexicon()
    favourable = unfavourable = 0
    turned = 0
    for word in _WORD.findall(text.lower()):
        if len(word) == 1 and not word.isalpha():
            turned = 0
            continue
        tone = whole.get(word) or next((stems[word[:end]] for end in range(len(word), 2, -1) if word[:end] in stems), 0)
        if tone:
            is_favourable = (tone > 0) != (turned > 0)
            favourable, unfavourable = favourable + is_favourable, unfavourable + (not is_favourable)
        turned = _REACH if word in _NEGATIONS or word.endswith(("n't", "n’t")) else max(0, turned - 1)
    return (favourable + _PRIOR / 2) / (favourable + unfavourable + _PRIOR)


@cache
def _lexicon() -> tuple[dict[str, int], dict[str, int]]:
    """Return whole words and stems, each with 1 or -1."""
    whole: dict[str, int] = {}
    stems: dict[str, int] = {}
    for line in LEXICON.read_text("utf-8").splitlines():
        if line[:1] in ("+", "-"):
            tone = 1 if line[0] == "+" else -1
            for word in line[1:].split():
                (stems if word.endswith("*") else whole)[word.rstrip("*")] = tone
    return whole, stems
