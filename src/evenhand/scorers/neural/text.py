"""What the scorer `neural` reads: the text without disguises, in windows of words and in sentences."""

from __future__ import annotations

import re
import unicodedata

from evenhand.core.types import Unscored
from evenhand.scorers.builtin import words_of

WINDOW, STRIDE = 80, 60
"""Longer texts are read in overlapping windows of so many words."""
SHORTEST, LONGEST = 4, 40
"""Words of a sentence: shorter ones are joined with the next, longer ones are cut."""

_APART = re.compile(r" (n't|'(?:s|m|d|re|ve|ll))(?= |$)")
_ENDS, _QUOTES = frozenset(".!?…"), frozenset('"“”')
_SKIN = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f\u200d]")


def plain_text(text: str) -> str | Unscored:
    """Return the text as the network reads it: words undisguised, emoji as words; Unscored if there are no words."""
    words = words_of(text if text.isascii() else _with_emoji_names(text))
    return words if isinstance(words, Unscored) else _APART.sub(r"\1", " ".join(words))


def windows(plain: str) -> list[str]:
    """Return the whole text, or overlapping windows of a long one."""
    words = plain.split(" ")
    if len(words) <= WINDOW:
        return [plain]
    starts = range(0, len(words) - WINDOW + STRIDE, STRIDE)
    return [" ".join(words[start : start + WINDOW]) for start in starts]


def sentences(plain: str) -> list[str]:
    """Return the sentences of a text; a quotation stays whole."""
    found: list[list[str]] = []
    words: list[str] = []
    quoted = False
    for word in plain.split(" "):
        words.append(word)
        quoted ^= word in _QUOTES
        ends = word in _ENDS and not quoted and len(words) >= SHORTEST
        if ends or len(words) == LONGEST:
            found.append(words)
            words, quoted = [], False
    if found and len(words) < SHORTEST:
        found[-1] += words
    else:
        found.append(words)
    return [" ".join(words) for words in found]


def _with_emoji_names(text: str) -> str:
    return "".join(f" {_name(sign)} " if unicodedata.category(sign) == "So" else sign for sign in _SKIN.sub("", text))


def _name(sign: str) -> str:
    return unicodedata.name(sign, "").lower().replace("-", " ")
