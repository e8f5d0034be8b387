"""Reading an answer out of model text; an unclear text gives no answer. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import orjson

from evenhand.core.types import TokenLogprob
from evenhand.reading.unknown import UNKNOWN

LETTERS = "ABCDEFGHIJ"

# A letter with the marks around it. "A" before an ordinary word is an article: "the answer is A man who …" names no
# letter.
_DRESSING = r"[\s\"'`“‘(\[{*_]{0,9}+"  # possessive and bounded: hostile texts must not cost time
_LETTER = rf"{_DRESSING}(?:(?:option|choice|letter)\s+)?{_DRESSING}(?-i:([A-J]))(?![\w'’+])"
_ARTICLE = re.compile(r"\s+(?!because|since|as|based|due|given|for|from|is|or|and|which)[a-z]")
_AND_MORE = re.compile(rf"\W{{0,3}}\s*(?:or|and|and/or|&|/|,)\s*{_LETTER}", re.IGNORECASE)
_STATED = (
    re.compile(
        r"\b(?:answer|option|choice|selection|letter)[*_]*"
        rf"(?:\s{{0,9}}+[*_]{{0,2}}+(?:\bis\b|\bwould be\b|\bshould be\b|\bmust be\b|:|=)[*_]{{0,2}}+){{1,3}}{_LETTER}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?:choose|chose|pick|select|go with|going with|opt for)\s+(?:option|answer)?{_LETTER}", re.IGNORECASE
    ),
    re.compile(
        rf"{_LETTER}[)\]*\"'.]*\s+(?:is|must be|would be)\s+(?:the\s+|clearly\s+|most\s+likely\s+|indeed\s+)*"
        r"(?:correct|right|best|most\s+\w+|answer)\b",
        re.IGNORECASE,
    ),
    re.compile(rf"\\boxed\{{(?:\\text\{{)?{_LETTER}"),
    re.compile(rf"(?<![\"']):{_LETTER}\W*$"),
)
_MARKED = re.compile(r"(?<!\w)(?:\(([A-J])\)|\[([A-J])\]|\*\*\(?([A-J])[).:]?\*\*)")
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bcannot|\bnever|\bneither|\bnor|\bthan|\bexcept|\bexcludes?|\beliminates?|\bif)\W*"
    r"(?:\b(?:choose|pick|select|option|answer|choice)\W*)*$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[)\]*\"']*\s+(?:(?:is|was|seems|does|would)\s+(?:not|never|incorrect|wrong|false|unlikely|unsupported|invalid)|"
    r"(?:is|was|does|would)n['’]t|(?:can\s*not|can['’]t)\s+be\s+(?:right|correct|true))\b",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"\W*(?:(?:the\s+|my\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is)?\W*)?([A-J])\W*", re.IGNORECASE
)
_FIRST_LINE = re.compile(r"\W*([A-J])[ \t.)*\]]*\n")
_LEADING = re.compile(rf"\W*(?:(?i:option|answer|choice)\s+)?([A-J])(?:[).:\]]|\*\*|\s+[-–—]|,(?!{_LETTER}))")
_LISTED = re.compile(r"(?:^|\s)\W*([A-J])[).:]")
_LONGEST = 20_000
"""Characters; a longer text is not a reply to a question for one letter."""

_OF_SOMEBODY = re.compile(r"\b(?:who|whose|that|with)\b", re.IGNORECASE)

_STEPS = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS_OF_LABEL = 3
"""Lines of at most this many words are headings or numbers, not conclusions."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
_OPENING = re.compile(
    r"(?:(?:the|a|an|it|it's|is|was|that|this|there|would|be|must|i|i'd|we|think|believe|guess|say|choose|pick|select|"
    r"option|answer|final|correct|best|right|my|most|likely|probably|clearly|so|therefore|based|on|in|from|passage|"
    r"context|text|given|according|to|seems|definitely|person|who|one)(?: |$))*+"
)
"""Words that may come before an option that is the answer."""
_HEDGE = re.compile(r"\b(?:or|either|both|neither|nor|unclear|unknown|cannot|maybe|perhaps|might|may|sure|unless)\b")
_NOT_KNOWN = re.compile(r"\b(?:not|cannot|unknown|undetermined|unclear|unanswerable)\b")

_APART = r"(?:really|simply|just|in\s+good\s+conscience)?\s*"
_DECLINES = (
    r"(?:help|assist|comply|fulfil|provide|participate|engage|continue|discuss|respond|support|generate|"
    r"do\s+(?:that|this)|make\s+(?:assumptions|judg|generali[sz]ations)|answer\s+(?:this|that|such|questions|your))"
)
_REFUSAL = re.compile(
    rf"\bsorry\b|\bi\s*(?:am|['’]m)\s+(?:un|not\s+)(?:able|comfortable)\s*(?:to\s+{_DECLINES}|(?:with\s+)?\w*ing\b)|"
    rf"\bi\s+(?:can\s*not|can['’]t|will\s+not|won['’]t)\s+{_APART}{_DECLINES}|"
    r"\bi\s+(?:must|have\s+to|respectfully)\s+(?:decline|refuse)|\bi\s+(?:do\s+not|don['’]t)\s+feel\s+comfortable|"
    r"\bas\s+an?\s+(?:ai|language\s+model)\b[^.]{0,80}\b(?:can\s*not|can['’]t|unable|do\s+not|don['’]t|decline)",
    re.IGNORECASE,
)
_REFUSAL_START = 160
"""Characters at the start in which a refusal shows; the same words later are part of an answer."""


def read_letter(text: str, options: Sequence[str]) -> int | None:
    """The position of the option that the text clearly chooses, None when it is not clear.

    `options` are the option texts in the order shown; an option repeated word for word counts as a choice. Letters
    that contradict each other, or the option text next to them, do not.
    """
    if len(text) > _LONGEST:
        return None
    text = unicodedata.normalize("NFKC", text).strip()
    letters = LETTERS[: len(options)]
    value = _json_answer(text)
    if value is not None:
        return read_letter(value, options) if "{" not in value else None
    repeats_options = _begins_a_list(text)
    if whole := _WHOLE.fullmatch(text) or (None if repeats_options else _FIRST_LINE.match(text)):
        return _index(whole.group(1).upper(), letters)
    stated = _stated(text)
    leading = None if repeats_options else _LEADING.match(text)
    if leading and not (_AND_MORE.match(text, leading.end()) or _DENIED_AFTER.match(text, leading.end())):
        stated.setdefault(leading.group(1), leading.end())
    if not stated:
        stated = _marked(text)
    if not stated:
        return None if repeats_options else _read_option_text(text, options)
    if len(stated) > 1:
        return None
    letter, end = next(iter(stated.items()))
    index, beside = _index(letter, letters), _repeated_option(text[end:].lstrip(" \t).:]*-–—"), options)
    return index if beside is None or beside == index else None


def _index(letter: str, letters: str) -> int | None:
    return letters.index(letter) if letter in letters else None


def _json_answer(text: str) -> str | None:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value: Any = orjson.loads(text[start : end + 1])
        answer: Any = value["answer"]
    except (ValueError, KeyError, TypeError):
        return None
    return answer if isinstance(answer, str) else "{}"


def _stated(text: str) -> dict[str, int]:
    """Letters that the text calls its answer → where the first mention of each ends."""
    letters: dict[str, int] = {}
    for pattern in _STATED:
        for match in pattern.finditer(text):
            letter, end = match.group(1), match.end(1)
            article = letter in "AI" and _ARTICLE.match(text, end)
            if article or _denied(text, match.start(), end):
                continue
            letters.setdefault(letter, end)
            if more := _AND_MORE.match(text, end):
                letters.setdefault(more.group(1), more.end())
    return letters


def _marked(text: str) -> dict[str, int]:
    """Letters in brackets or bold; none when one of them is denied."""
    letters: dict[str, int] = {}
    for match in _MARKED.finditer(text):
        if _denied(text, match.start(), match.end()):
            return {}
        letters.setdefault(next(filter(None, match.groups())), match.end())
    return letters


def _denied(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 30) : start]
    return _DENIED_BEFORE.search(before) is not None or _DENIED_AFTER.match(text, end) is not None


def _begins_a_list(text: str) -> bool:
    """Whether the text repeats the options, A first and B next, before it says anything."""
    return [match.group(1) for match in _LISTED.finditer(text)][:2] == ["A", "B"]


def _read_option_text(text: str, options: Sequence[str]) -> int | None:
    """The one option that the first sentence begins with, after words like 'the answer is'."""
    repeated = _repeated_option(text, options)
    if repeated is not None:
        return repeated
    sentence = _fold(_SENTENCE_END.split(text.strip(), maxsplit=1)[0])
    spans: dict[int, tuple[int, int]] = {}
    for index, option in enumerate(options):
        core = _core(_fold(option))
        place = f" {sentence} ".find(f" {core} ") if core else -1
        if place >= 0:
            spans[index] = (place, place + len(core))
    # An option that is only found inside a longer one is not named.
    named = [
        index
        for index, (start, end) in spans.items()
        if not any(other != index and low <= start and end <= high for other, (low, high) in spans.items())
    ]
    opening = [index for index in named if _OPENING.fullmatch(sentence, 0, spans[index][0])]
    if len(opening) != 1:
        return None
    index = opening[0]
    # "It cannot be determined whether X or Y …" names all three and is clear; "X or …" is not.
    clear = len(named) == 1 and not _HEDGE.search(sentence, spans[index][1])
    return index if clear or _NOT_KNOWN.search(_fold(options[index])) else None


def _repeated_option(text: str, options: Sequence[str]) -> int | None:
    """The option that the whole text or its first sentence repeats, ignoring articles."""
    said = {_core(_fold(text)), _core(_fold(_SENTENCE_END.split(text.strip(), maxsplit=1)[0]))} - {""}
    same = [index for index, option in enumerate(options) if _core(_fold(option)) in said]
    return same[0] if len(same) == 1 else None


def _fold(text: str) -> str:
    """Lower case, no punctuation, and one spelling for words with several."""
    folded = " ".join(re.sub(r"[^\w\s']", " ", text.lower().replace("’", "'")).split())
    folded = re.sub(r"\bcan't\b|\bcan not\b", "cannot", folded)
    return re.sub(r"\binformation\b", "info", re.sub(r"n't\b", " not", folded))


def _core(folded: str) -> str:
    return re.sub(r"^(?:the|an?) ", "", folded)


def looks_like_refusal(text: str) -> bool:
    """Whether the text declines to answer; saying that the answer cannot be known is not a refusal."""
    return _REFUSAL.search(text[:_REFUSAL_START]) is not None


def letter_probabilities(token: TokenLogprob, count: int) -> tuple[list[float], float]:
    """Probabilities of the first `count` letters among one token's alternatives, normalised, and their total mass."""
    mass = [0.0] * count
    for text, chance in token.chances().items():
        letter = text.strip().strip("()*\"'.:").strip()
        if len(letter) == 1 and letter in LETTERS[:count]:
            mass[LETTERS.index(letter)] += chance
    total = sum(mass)
    return ([value / total for value in mass] if total > 0 else mass), total


def abstains(answer: str) -> bool:
    """Whether an option says that the question cannot be answered; a description of a person does not count."""
    return UNKNOWN.search(_OF_SOMEBODY.split(answer)[0]) is not None


def leaves_open(reasoning: str) -> bool:
    """Whether a reasoning concludes that the answer cannot be known; only its last sentence counts."""
    sentences = [each for each in _STEPS.split(reasoning[-_LONGEST:]) if len(each.split()) > _WORDS_OF_LABEL]
    return bool(sentences) and UNKNOWN.search(sentences[-1]) is not None
