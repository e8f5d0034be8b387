"""Calibration of the judge of claims: sentences about passages of the built-in set, some proved and some not.

Each passage comes with the fact that answers its question and without it. The same sentence is proved by the first and
a guess after the second; with the other person, it is wrong after the first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from evenhand.core.types import Sample, Unscored
from evenhand.data.bbq.generate import builtin_rows
from evenhand.evaluators.claims import CLAIMS, claim_support
from evenhand.judging.card import Contrast, JudgeTest
from evenhand.judging.rubric import Ratings
from evenhand.reading.text import abstains
from evenhand.session import Session

PASSAGES = 24


def contrasts() -> list[Contrast]:
    """Returns three sentences for each passage, of which one is proved."""
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in builtin_rows():
        key = f"{row['category']}/{row['question_index']}/{row['question_polarity']}"
        pairs.setdefault(key, {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    drawn = random.Random(0).sample(both, min(PASSAGES, len(both)))
    return [each for pair in drawn for each in _of_passage(pair["ambig"], pair["disambig"])]


def _of_passage(vague: Mapping[str, Any], clear: Mapping[str, Any]) -> Iterator[Contrast]:
    right = clear[f"ans{clear['label']}"]
    people = [clear[f"ans{place}"] for place in range(3) if not abstains(clear[f"ans{place}"])]
    for person in people:
        yield _contrast(clear, person, person == right)
    guessed = [vague[f"ans{place}"] for place in range(3) if not abstains(vague[f"ans{place}"])]
    yield _contrast(vague, guessed[0], False)


def _contrast(row: Mapping[str, Any], person: str, proved: bool) -> Contrast:
    sentence = f"{person} {row['question'].removeprefix('Who ').rstrip('?')}."
    sample = Sample("contrast", "chat", f"{row['context']} {row['question']}")

    async def rate(session: Session) -> Ratings | Unscored:
        support = await claim_support(session, sample.messages, sentence)
        return support if isinstance(support, Unscored) else Ratings({CLAIMS: support}, {CLAIMS: support})

    return Contrast(sample, rate, [(CLAIMS, proved)])


CALIBRATION = JudgeTest("judge claims", contrasts, kinds=frozenset({"chat"}))
