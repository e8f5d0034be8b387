"""Words that name groups of people, and how much they may add to a score.

A scorer that learned from comments has seen some groups more often under attack than others, so that their names alone
raise its scores. Where a text names groups, it is scored again with a word for anybody in their place. What is hostile
in "Germans are vermin" is hostile in "locals are vermin", too; what is not remains low.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GROUP_WORDS = Path(__file__).with_name("identity.txt")

_ONE, _WITH = "local", "with"
_HEADS = {"people": "locals", "folks": "locals", "persons": "locals", "person": "local"}
"""Words after an adjective that name nobody by themselves, and what the two are replaced by."""


def without_groups(words: Sequence[str]) -> list[str] | None:
    """Return the words (in lower case) with names of groups replaced; None if there are none.

    Several names in a row give way to one word, and so do a name and the "people" or "person" before or after it.
    """
    if not _may_name(words):
        return None
    instead: list[str] = []
    place, after_name, changed = 0, False, False
    while place < len(words):
        length, word = _name_at(words, place)
        if not length and after_name and words[place] in _HEADS:
            length, word = 1, _HEADS[words[place]]
        if not length:
            instead.append(words[place])
        elif after_name:
            instead[-1] = word or instead[-1]
        elif instead and instead[-1] in _HEADS:
            instead[-1] = _HEADS[instead[-1]]
        elif word:
            instead.append(word)
        after_name = bool(length and instead)
        changed |= length > 0
        place += length or 1
    return instead if changed and instead else None


def bounded(logits: Floats, anybody: Floats, most: float) -> Floats:
    """Return the logits of a text, lowered where its groups raise its toxicity by more than `most`.

    `anybody` are the logits of the text without its groups, and the first of each is the toxicity. All attributes are
    lowered alike, since an attack on nobody's group is no identity attack, however hostile it is.
    """
    return logits - max(float(logits[0] - anybody[0]) - most, 0.0)


def _name_at(words: Sequence[str], place: int) -> tuple[int, str]:
    """Return how many words name a group at this place, and their replacement; 0 if none do."""
    for phrase, instead in _phrases().get(words[place], ()):
        if tuple(words[place : place + len(phrase)]) == phrase:
            return len(phrase), instead
    stem, mark, rest = words[place].partition("'")
    instead = _words().get(stem)
    return (0, "") if instead is None else (1, f"{instead}{mark}{rest}")


def _may_name(words: Sequence[str]) -> bool:
    """Whether words, in any order, may name a group; most texts name none, and are not read word by word."""
    if "'" in "".join(words) or not _words().keys().isdisjoint(words):
        return True
    if (seconds := _seconds()).keys().isdisjoint(words):
        return False
    return any(not seconds[word].isdisjoint(words) for word in seconds.keys() & set(words))


@cache
def _seconds() -> dict[str, frozenset[str]]:
    """Return the second words of names of several words, by their first word."""
    return {first: frozenset(phrase[1] for phrase, _ in several) for first, several in _phrases().items()}


@cache
def _words() -> dict[str, str]:
    return {" ".join(phrase): instead for phrase, instead in _listed() if len(phrase) == 1}


@cache
def _phrases() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Return names of several words by their first word, the longest first."""
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for phrase, instead in sorted(_listed(), key=lambda each: -len(each[0])):
        if len(phrase) > 1:
            found.setdefault(phrase[0], []).append((phrase, instead))
    return found


def _listed() -> Iterator[tuple[tuple[str, ...], str]]:
    lines = GROUP_WORDS.read_text(encoding="utf-8").splitlines()
    for line in lines:
        instead, _, names = line.partition(": ")
        for name in () if line.startswith("#") else names.split():
            phrase = tuple(name.split("_"))
            if instead == _WITH:
                yield from (((_WITH, *article, *phrase), "") for article in ((), ("a",), ("an",)))
            else:
                yield phrase, instead
            if instead == _ONE:
                yield (*phrase[:-1], f"{phrase[-1]}s"), f"{_ONE}s"
