"""Reading an answer out of model text: tolerant where the text is clear, silent where it is not. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import orjson

from evenhand.types import TokenLogprob

LETTERS = "ABCDEFGHIJ"

_STATED = re.compile(
    r"(?:final\s+answer|answer|option|choice)\s*(?:is|:|=|would be)?\s*[:=]?\s*[\"'(\[*_ ]*([A-J])\b(?![\w'’])",
    re.IGNORECASE,
)
_MARKED = re.compile(r"(?:^|[\s:])(?:\(([A-J])\)|\[([A-J])\]|\*\*\(?([A-J])[).]?\*\*)")
_LEADING = re.compile(r"^\W*([A-J])(?:[).:\]]|\s*$|\s+[-–—])")
_REFUSAL = re.compile(
    r"\b(?:i\s*(?:am|'m|’m)\s+(?:sorry|unable|not\s+able|not\s+comfortable)|i\s+(?:can\s*not|can't|can’t|won't|won’t|"
    r"must\s+decline|do\s+not\s+feel|don't\s+feel)|as\s+an?\s+(?:ai|language\s+model))\b",
    re.IGNORECASE,
)
_REFUSAL_START = 160
"""A refusal says so at once; the same words later in a text are part of an answer."""


def read_letter(text: str, options: Sequence[str]) -> int | None:
    """The position of the option that the text clearly chooses, None when it is not clear.

    `options` are the option texts in the order shown; an option repeated word for word counts as a choice.
    """
    letters = LETTERS[: len(options)]
    structured = _read_json(text, letters)
    if structured is not None:
        return structured
    leading = _LEADING.match(text)
    stated = [match.group(1) for match in _STATED.finditer(text)]
    marked = [next(filter(None, match.groups())) for match in _MARKED.finditer(text)]
    for found in ([leading.group(1)] if leading else [], stated[-1:], marked):
        chosen = {letter.upper() for letter in found if letter.upper() in letters and letter.isupper()}
        if len(chosen) == 1:
            return letters.index(chosen.pop())
    return _read_option_text(text, options)


def _read_json(text: str, letters: str) -> int | None:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value: Any = orjson.loads(text[start : end + 1])
        letter: Any = value["answer"]
    except (ValueError, KeyError, TypeError):
        return None
    return letters.index(letter) if isinstance(letter, str) and len(letter) == 1 and letter in letters else None


def _read_option_text(text: str, options: Sequence[str]) -> int | None:
    """The one option that occurs in the text; none when several do."""
    folded = _fold(text)
    found = [index for index, option in enumerate(options) if _fold(option) and f" {_fold(option)} " in f" {folded} "]
    return found[0] if len(found) == 1 else None


def _fold(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s']", " ", text.lower().replace("’", "'")).split())


def looks_like_refusal(text: str) -> bool:
    """Whether the text declines to answer."""
    return _REFUSAL.search(text[:_REFUSAL_START]) is not None


def letter_probabilities(token: TokenLogprob, count: int) -> tuple[list[float], float]:
    """Probabilities of the first `count` letters from one token's alternatives, normalised, and their share of all."""
    mass = [0.0] * count
    alternatives = dict(token.top) or {token.token: token.logprob}
    for text, logprob in alternatives.items():
        letter = text.strip().strip("()*\"'.:").strip()
        if len(letter) == 1 and letter in LETTERS[:count]:
            mass[LETTERS.index(letter)] += math.exp(logprob)
    total = sum(mass)
    return ([value / total for value in mass] if total > 0 else mass), total
