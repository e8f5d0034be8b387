"""Finds statements that repeat their prompt or nearly repeat another statement: neither is an answer to learn from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenhand.training.pairs.leaks import MIN_WORDS, SIZE, sequences_of, words_in

OPENING = 4
"""A sentence that begins with this many words of a sentence of the prompt repeats it ("The debate is about …")."""
SHINGLE = 3
"""Words of a shingle."""
SIMILAR = 0.8
"""Two statements are near-duplicates from this Jaccard similarity of their shingles on."""

_QUOTED = re.compile(r"<<<.*?>>>", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")


@dataclass(frozen=True, slots=True)
class EchoCheck:
    """The word sequences of the prompts of one debate."""

    sequences: frozenset[str]
    openings: frozenset[str]

    @classmethod
    def of(cls, question: str, prompts: Iterable[str]) -> EchoCheck:
        """Prepare the check of the answers to a question.

        Args:
            prompts: What the debaters read. What others said is quoted between <<< and >>> in them, and is left out.
        """
        sequences: set[str] = set()
        openings: set[str] = set()
        for text in (question, *prompts):
            for part in _QUOTED.split(text):
                sequences.update(sequences_of(words_in(part), SIZE))
                sentences = _SENTENCE_END.split(part)
                whole = map(words_in, sentences)
                sequences.update(" ".join(words) for words in whole if MIN_WORDS <= len(words) < SIZE)
                # What ends with a colon ("What the others say:") announces something, and is a usual opening.
                openings.update(_openings(each for each in sentences if not each.rstrip().endswith(":")))
        # An answer may begin like the question: "What makes a good driver is …"
        return cls(frozenset(sequences), frozenset(openings - _openings(_SENTENCE_END.split(question))))

    def is_echo(self, text: str) -> bool:
        """Whether a statement has eight words in a row, a whole sentence or the opening of a sentence of a prompt."""
        if not self.openings.isdisjoint(_openings(_SENTENCE_END.split(text))):
            return True
        words = words_in(text)
        return any(
            sequence in self.sequences for size in range(MIN_WORDS, SIZE + 1) for sequence in sequences_of(words, size)
        )


def _openings(sentences: Iterable[str]) -> set[str]:
    words = (words_in(each)[:OPENING] for each in sentences)
    return {" ".join(each) for each in words if len(each) == OPENING}


def near_duplicates(texts: Sequence[str]) -> list[bool]:
    """Return for each text whether it is a near-duplicate of an earlier one that is none itself."""
    shingles = [frozenset(sequences_of(words_in(text), SHINGLE)) for text in texts]
    frequency = Counter(each for own in shingles for each in own)
    index: dict[str, list[int]] = {}
    repeated: list[bool] = []
    for number, own in enumerate(shingles):
        # Texts this similar share at least one of their rarest shingles, so only these are looked up.
        rarest = sorted(own, key=lambda each: (frequency[each], each))
        rarest = rarest[: len(own) - math.ceil(SIMILAR * len(own)) + 1]
        candidates = {other for each in rarest for other in index.get(each, ())}
        repeated.append(any(_jaccard(own, shingles[other]) >= SIMILAR for other in candidates))
        if not repeated[-1]:
            for each in rarest:
                index.setdefault(each, []).append(number)
    return repeated


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)
