"""Which language a text is in: the only place that tells languages apart, by the package py3langid.

A rule that reads words declares its `languages` and asks `unsupported` before it reads. A text too short to tell counts
as the first of these languages, so that short texts are read: it has fewer than three words, or fewer than two in lower
case (names look alike everywhere), or the language is not ruled out. Text in another
script than Latin is never too short.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

REASON = "language"
"""How the reason begins for which a text stays unscored: "language de is not supported"."""
UNREAD = "unread"
"""The detail of an answer that says why it stays open whether it is a refusal: such a reason."""
LEAST = 0.002
"""A language whose probability is below it is ruled out."""
_NEAR = 0.2
"""The share of the highest probability from which a likely language is preferred."""
_FEWEST = 3  # words
_FEWEST_LOWER = 2  # different words in lower case
_SHOWN = 1_000  # characters of a text that are looked at
_LONGEST = 40  # letters; longer tokens are no words
_SIGNS = "\"'.,;:!?()[]{}*_~…“”‘’«»-–—"
_SHORT = 25  # words of a text in which small words are counted
_SURE, _SURE_SHARE = 3, 5  # English small words, and one in so many words, from which no other language is looked for
_LIKELY = 0.5  # probability of a language of which one small word is enough
_DOUBT, _ENOUGH = 0.01, 4  # a probability of English, and words, at which a text without its small words is not English
_ENGLISH, _SHARED = "en", "shared"
_loading = threading.Lock()
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SAME = {"yue": "zh", "wuu": "zh", "nn": "no", "hbo": "he", "grc": "el"}
"""Varieties that count as the language they are written like."""
_OPEN = ("zxx", "pcm")
"""No language: a text without words of any, and English that is spelt by ear."""


def language_of(text: str, declared: str = "en", likely: Sequence[str] = ()) -> str:
    """Return the code of the language of `text`; `declared` if it is too short to tell.

    One of the `likely` languages is preferred to a neighbour of it that is not much more probable.
    """
    chances = _chances(text, (declared,))
    if not chances:
        return declared
    found = max(chances, key=chances.__getitem__)
    near = max(likely, key=lambda each: chances.get(each, 0.0), default=found)
    if chances.get(near, 0.0) >= _NEAR * chances[found]:
        found = near
    return declared if found in _OPEN else found


def unsupported(text: str, languages: Sequence[str]) -> str | None:
    """Return the reason why a rule for these languages cannot read `text`; None if it can."""
    chances = _chances(text, languages)
    found = max(chances, key=chances.__getitem__, default=_OPEN[0])
    return None if found in _OPEN else f"{REASON} {found} is not supported"


def other_script(text: str) -> bool:
    """Return whether most letters are of another script than Latin."""
    if text.isascii():
        return False
    plain = unicodedata.normalize("NFKD", text)
    letters = [sign for sign in plain if sign.isalpha()]
    return sum(sign.isascii() for sign in letters) * 2 < len(letters)


def _chances(text: str, languages: Sequence[str]) -> Mapping[str, float]:
    """Return language → probability; nothing if the text is too short to tell, or may be in one of the languages."""
    start = text[:_SHOWN] if text.isascii() else unicodedata.normalize("NFC", text[:_SHOWN])
    if _ENGLISH in languages and _is_surely_english(start):
        return {}
    if not other_script(start):
        words = _words(start)
        if len(words) < _FEWEST or len({word for word in words if word.islower()}) < _FEWEST_LOWER:
            return {}
    identifier = _identifier()
    if identifier.classify(start)[0] in languages:  # as almost always, and cheaper than all probabilities
        return {}
    chances: dict[str, float] = {}
    ranked: Sequence[tuple[str, float]] = identifier.rank(start)
    for language, chance in ranked:
        same = _SAME.get(language, language)
        chances[same] = chances.get(same, 0.0) + chance
    if any(chances.get(each, 0.0) >= LEAST for each in languages):
        return _by_small_words(start, chances) if set(languages) == {"en"} else {}
    return chances


def _is_surely_english(text: str) -> bool:
    """Whether a text is full of English small words, as almost every English one is; much cheaper than to classify.

    Its letters are those of English; dashes, quotation marks and arrows may be any.
    """
    if not text.isascii() and any(map(str.isalpha, _NOT_ASCII.findall(text))):
        return False
    words = text.lower().split()
    count = sum(map(_small_words()[_ENGLISH].__contains__, words))
    return count >= _SURE and count * _SURE_SHARE >= len(words)


def _by_small_words(text: str, chances: Mapping[str, float]) -> Mapping[str, float]:
    """Return the language whose small words a short text is full of, where letters alone leave English possible."""
    words = [word.strip(_SIGNS).lower() for word in text.split()]
    if len(words) > _SHORT:
        return {}
    known = _small_words()
    english = sum(word in known[_ENGLISH] for word in words)
    if chances[_ENGLISH] < _DOUBT and len(_words(text)) >= _ENOUGH:
        bare = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()  # accents may disguise
        if known[_ENGLISH].isdisjoint(word.strip(_SIGNS) for word in bare.split()):
            return chances
    likeliest = max(chances, key=chances.__getitem__)
    if not english and chances[likeliest] >= _LIKELY and any(word in known.get(likeliest, ()) for word in words):
        return {likeliest: 1.0}
    others = known.keys() - {_ENGLISH, _SHARED}
    counts = {each: sum(word in known[each] - known[_SHARED] for word in words) for each in sorted(others)}
    best = max(counts, key=counts.__getitem__)
    many = counts[best] >= max(2, len(words) / 3) and counts[best] > 2 * english
    return {best: 1.0} if many else {}


@cache
def _small_words() -> Mapping[str, frozenset[str]]:
    lines = Path(__file__).with_name("language.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(": ") for line in lines if not line.startswith("#"))
    return {language: frozenset(words.split()) for language, _, words in parts}


def _words(text: str) -> list[str]:
    """Return the words, without numbers, links and mentions; a text in capitals counts as in lower case."""
    tokens = text.lower().split() if text.isupper() else text.split()
    words = [token.strip(_SIGNS) for token in tokens if token[0] not in "@#" and "://" not in token]
    return [word for word in words if 1 < len(word) <= _LONGEST and _LETTERS.fullmatch(word)]


def preload() -> None:
    """Load the classifier, half a second's work and 80 MB, before the first text needs it."""
    _identifier()


def _identifier() -> Any:
    with _loading:  # a server preloads it in a thread
        return _loaded_identifier()


@cache
def _loaded_identifier() -> Any:
    from py3langid import langid  # pyright: ignore[reportMissingTypeStubs]

    module: Any = langid
    return module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)
