"""Texts without labels that `neural` learns from, with what three scorers think of them together.

A network that has seen the labelled texts ten times knows them by heart; the mean of several scorers on other texts
teaches it what it does not know by heart. The scorers are those of the package: `neural` as it is before the training,
`builtin` and `builtin_b`. Their shares were chosen on the calibration side of RealToxicityPrompts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.base import ATTRIBUTES
from evenhand.scorers.builtin import BuiltinScorer, BuiltinScorerB
from evenhand.scorers.neural import NeuralScorer
from evenhand.scorers.neural.text import plain_text, windows
from evenhand.types import Unscored
from tools.train_scorer import corpora
from tools.train_scorer.measure import scores_of

NUMBER = 24_000
SHARES: Mapping[Any, float] = {NeuralScorer: 0.7, BuiltinScorer: 0.15, BuiltinScorerB: 0.15}


def rows(data: Path, others: list[str], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Rows as `neural_texts` writes them: whole sentences of RealToxicityPrompts, and parts of them and of `others`."""
    learned = [texts for side, texts in corpora.read_rtp(data).items() if side not in ("test", "a calibration")]
    halves = [text for texts in learned for text in texts.texts]
    joint = [
        f"{texts.texts[n].strip()} {texts.texts[n + 1].strip()}"
        for texts in learned
        for n in range(len(texts.texts) - 1)
        if texts.clusters[n] == texts.clusters[n + 1]
    ]
    drawn = [_part(chance.choice(pool), chance) for pool in (joint, halves, others) for _ in range(NUMBER // 3)]
    read = [text for text in drawn if not isinstance(plain_text(text), Unscored)]
    for text, scores in zip(read, _together(read), strict=True):
        plain = plain_text(text)
        assert isinstance(plain, str)
        yield {"set": "train opinions", "labels": scores.round(4).tolist(), "windows": windows(plain)[:1]}


def _part(text: str, chance: random.Random) -> str:
    """The text, or some of its words in a row."""
    words = text.split()
    if len(words) < 8 or chance.random() < 0.3:
        return " ".join(words[:60])
    start = chance.randrange(len(words) // 2)
    return " ".join(words[start : start + chance.randint(4, 30)])


def _together(texts: list[str]) -> NDArray[np.float64]:
    logits = np.zeros((len(texts), len(ATTRIBUTES)))
    for scorer, share in SHARES.items():
        scores = np.clip(scores_of(scorer(), texts), 1e-4, 1 - 1e-4)
        logits += share * np.log(scores / (1 - scores))
    return 1 / (1 + np.exp(-logits))
