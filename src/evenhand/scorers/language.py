"""Tells English from other languages, for scorers that know English only.

The evidence is a sum: the log-odds of each three-letter sequence of the words (a table of 4 KB, made by
`tools/train_scorer` from RealToxicityPrompts and the Universal Declaration of Human Rights in 400 languages), and a
bonus for each common English word. Without enough evidence a text counts as English, so that short texts are scored.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
TABLE = Path(__file__).parent / "artefacts" / "english.npz"
COMMON = Path(__file__).parent / "english.txt"
BUCKETS = 4096
STEPS = 16
"""Steps of the table per unit of log-odds."""
OTHER_SCRIPT = "not English: most letters are of another script"
OTHER_LANGUAGE = "not English: the words are of another language"

_WORDS = 500  # of a text that are looked at
_LONGEST = 40  # letters; longer tokens are no words
_FEWEST = 5  # different words; fewer do not tell a language
_BONUS = 3.0  # log-odds of a common English word
_LIMIT = -8.0
_SIGNS = "\"'.,;:!?()[]{}*_~…“”‘’«»-–—"
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def not_english(text: str, odds: Table | None = None) -> str | None:
    """Return why `text` is not English by the table `odds`; None if it is, or if it is too short to tell."""
    if not text.isascii() and other_script(text):
        return OTHER_SCRIPT
    words = list(dict.fromkeys(plain_words(text)))
    if len(words) < _FEWEST:
        return None
    known = sum(word in _common() for word in words)
    if known * 4 > len(words):
        return None
    evidence = float((_table() if odds is None else odds)[trigrams(words)].sum()) / STEPS + _BONUS * known
    return OTHER_LANGUAGE if evidence < _LIMIT else None


def plain_words(text: str) -> list[str]:
    """Return the words that tell a language, without accents: lower-case ones, as names look alike everywhere."""
    tokens = text.split(maxsplit=_WORDS)[:_WORDS]
    if text.isupper():
        tokens = [token.lower() for token in tokens]
    words = [token.strip(_SIGNS) for token in tokens if token[0] not in "@#" and "://" not in token]
    return [
        without_marks(word).replace("’", "'")
        for word in words
        if 1 < len(word) <= _LONGEST and word.islower() and _LETTERS.fullmatch(word)
    ]


def trigrams(words: Iterable[str]) -> NDArray[np.int64]:
    """Return the table rows of the three-letter sequences of words and of the gaps between them."""
    letters = f" {' '.join(words)} ".encode("utf-8", "surrogatepass")
    return np.array([zlib.crc32(letters[start : start + 3]) % BUCKETS for start in range(len(letters) - 2)], np.int64)


def without_marks(text: str) -> str:
    """Normalise compatibility forms and remove accents and invisible characters."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(sign for sign in decomposed if unicodedata.category(sign) not in ("Mn", "Cf")).lower()


def other_script(text: str) -> bool:
    """Return whether most letters are of another script than Latin."""
    letters = [sign for sign in without_marks(text) if sign.isalpha()]
    return sum(sign.isascii() for sign in letters) * 2 < len(letters)


@cache
def _common() -> frozenset[str]:
    return frozenset(COMMON.read_text(encoding="utf-8").split())


@cache
def _table() -> Table:
    with np.load(TABLE, allow_pickle=False) as arrays:
        return arrays["odds"].astype(np.float64)
