"""Calibration of StarDTox's judges: contrasting texts, from which the curves of the judge's card are fitted.

The texts are our own, so that nothing is tuned on a public benchmark. The passages are those of `bbq_builtin`, so
results on that benchmark are too optimistic.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evenhand.core.types import Sample, Unscored
from evenhand.data.bbq.generate import builtin_rows
from evenhand.evaluators.judged import (
    HELPFULNESS,
    SETTLED,
    SUPPORT,
    bias_messages,
    bias_rubric,
    chat_messages,
    chat_rubric,
    p_proved,
)
from evenhand.judging.card import Contrast, JudgeTest, rated_by
from evenhand.judging.rubric import Ratings
from evenhand.judging.scorers import QUALITIES, quality_messages, quality_rubric
from evenhand.reading.text import abstains
from evenhand.session import Session

PASSAGES = 24
"""Number of built-in passages, each judged with and without the fact that settles the question."""
_REFUSAL = "I am sorry, but I cannot help with that."


def contrasts() -> list[Contrast]:
    """Returns the contrasts for all ratings of StarDTox's judges."""
    return [*_proof_jobs(), *_quality_jobs(), *_chat_jobs(), *_harm_jobs()]


def _proof_jobs() -> Iterator[Contrast]:
    """Yields each passage with the fact and without it; the judge is asked about each person in turn."""
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in builtin_rows():
        if row["question_polarity"] == "neg":
            pairs.setdefault(f"{row['category']}/{row['question_index']}", {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    for pair in random.Random(0).sample(both, min(PASSAGES, len(both))):
        yield _proof_job(pair["disambig"])
        yield _proof_job(pair["ambig"])


def _proof_job(row: Mapping[str, Any]) -> Contrast:
    options = tuple(str(row[f"ans{index}"]) for index in range(3))
    right = options[int(row["label"])]
    people = [each for each in options if not abstains(each)]
    sample = Sample("contrast", "choice", row["question"], row["context"], options)

    async def rate(session: Session) -> Ratings | Unscored:
        proved: dict[str, float] = {}
        for person in people:
            p = await p_proved(session, sample, person)
            if isinstance(p, Unscored):
                return p
            proved[f"{SUPPORT}/{person}"] = p
        values = {**proved, SETTLED: max(proved.values())}
        return Ratings(values, values)

    by_person = [(f"{SUPPORT}/{person}", person == right) for person in people]
    return Contrast(sample, rate, [(SETTLED, right in people), *by_person])


def _quality_jobs() -> Iterator[Contrast]:
    pairs = _contrast()["quality"]
    for number, (beginning, good) in enumerate(pairs):
        other = pairs[(number + 5) % len(pairs)][1]
        for text, ratings, high in (
            (good, QUALITIES, True),
            (_shuffled(good, number), ("fluency", "coherence"), False),
            (other, ("relevance", "coherence"), False),
        ):
            sample = Sample("contrast", "completion", beginning)
            expected = [(name, high) for name in ratings]
            yield rated_by(sample, quality_rubric(), quality_messages(beginning, text), expected)


def _chat_jobs() -> Iterator[Contrast]:
    pairs = _contrast()["answers"]
    for number, (question, good) in enumerate(pairs):
        other = pairs[(number + 3) % len(pairs)][1]
        for text, ratings, high in (
            (good, (*QUALITIES, HELPFULNESS), True),
            (_shuffled(good, number), ("fluency", "coherence"), False),
            (other, ("relevance", HELPFULNESS), False),
            (_REFUSAL, (HELPFULNESS,), False),
        ):
            sample = Sample("contrast", "chat", question)
            yield rated_by(sample, chat_rubric(), chat_messages(sample, text), [(name, high) for name in ratings])


def _harm_jobs() -> Iterator[Contrast]:
    for beginning, harmful, harmless in _contrast()["harm"]:
        for text, high in ((harmful, True), (harmless, False)):
            sample = Sample("contrast", "completion", beginning)
            yield rated_by(sample, bias_rubric(), bias_messages(beginning, text), [("harm", high)])


def _shuffled(text: str, seed: int) -> str:
    words = text.split()
    random.Random(seed).shuffle(words)
    return " ".join(words)


@cache
def _contrast() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("contrast.yaml").read_text(encoding="utf-8"))


CALIBRATION = JudgeTest("judge for stardtox", contrasts)
