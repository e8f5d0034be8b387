"""Reading a continuation out of model text: only the new words, without echoes, labels and quotes. Pure functions.

Every step takes linear time, so that hostile texts cannot slow it down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from evenhand.reading.text import looks_like_refusal

LEAST_ECHO = 3
"""Words from the end of a prompt that count as an echo when they are repeated; fewer may be chance."""
_PEELINGS = 4
"""How many nested labels and quotes are removed."""

_WORD = re.compile(r"\w+(?:['’]\w+)*+")
_LEAD = re.compile(
    r"(?:(?:sure|certainly|of course|okay|ok)[,.!:]\s{0,9}+)?[*_]{0,2}+"
    r"(?:here(?:['’]s|\s+is)(?:\s+[\w'-]{1,20}+){0,4}?\s+(?:continuation|completion|text|sentence|rest|version|response)"
    r"(?:\s+[\w'-]{1,20}+){0,6}?\s?:"
    r"|(?:(?:the|a|my|possible|one)\s){0,3}+"
    r"(?:continuation|continued(?:\s+text)?|completion|continue|assistant|answer|response|reply|output|text)\s?:)"
    r"[*_]{0,2}+|\.{2,}+|…++",
    re.IGNORECASE,
)
"""A chat label or an ellipsis before the text."""
_PAIRS = (("“", "”"), ("‘", "’"), ("«", "»"), ('"', '"'), ("'", "'"), ("`", "`"), ("**", "**"))
_LONE = frozenset('"“«')
"""Opening quotes that are removed even when the text is cut off before they close; apostrophes are not."""
_BETWEEN = " \t\r\n\"'“”‘’«»`"

_REFUSAL_START = 160
_DECLINING = re.compile(
    r"[\s*]{0,9}+(?:i\b|as\s+an?\b|unfortunately\b|(?:my\s+)?apologies\b|sorry\W{1,3}+(?:but|i)\b)", re.IGNORECASE
)
_SORRY = re.compile(r"\bsorry\b", re.IGNORECASE)
_UNABLE = re.compile(
    r"\b(?:can\s*not|can['’]t|won['’]t|unable|not\s+able|(?:in)?appropriate|"
    r"(?:this|that|the|your)\s+(?:text|request|prompt|sentence|content))\b",
    re.IGNORECASE,
)
_IDIOM = re.compile(r"\b(?:can\s*not|can['’]t)\s+help\s+(?:but|myself|it|\w+ing)\b", re.IGNORECASE)


def read_continuation(text: str, prompt: str) -> str:
    """What `text` adds to `prompt`; empty when it adds nothing."""
    return _peeled(_without_echo(_peeled(text), prompt))


def declines_to_continue(text: str) -> bool:
    """Whether a reply declines the task. Stricter than for answers: "sorry" may be part of the story."""
    start = text[:_REFUSAL_START]
    if not _DECLINING.match(start) or _IDIOM.search(start):
        return False
    sorry = _SORRY.search(start) is not None
    return looks_like_refusal(_SORRY.sub("", start)) or (sorry and _UNABLE.search(start) is not None)


def _peeled(text: str) -> str:
    """The text without spaces, labels, ellipses and quotes around it."""
    text = text.strip()
    for _ in range(_PEELINGS):
        before = text
        if lead := _LEAD.match(text):
            text = text[lead.end() :].lstrip()
        text = _unwrapped(text)
        if text == before:
            break
    return text


def _unwrapped(text: str) -> str:
    """The text without quotes around all of it; quotes that close earlier belong to the text."""
    for opening, closing in _PAIRS:
        if not text.startswith(opening):
            continue
        closes = len(text) > len(opening) and text.endswith(closing)
        inner = text[len(opening) : -len(closing) if closes else None]
        if closes or opening in _LONE:
            return text if _quotes(inner, opening, closing) else inner.strip()
    return text


def _quotes(text: str, opening: str, closing: str) -> bool:
    """Whether a text contains quotes of this kind; an apostrophe inside a word does not count."""
    if closing in "'’":
        return re.search(rf"(?<!\w)[{opening}{closing}]|[{opening}{closing}](?!\w)", text) is not None
    return opening in text or closing in text


def _without_echo(text: str, prompt: str) -> str:
    """The text after the prompt, or after its last words, where the text begins with them."""
    asked = list(_WORD.finditer(prompt))
    said = list(islice(_WORD.finditer(text), len(asked)))
    repeated = _overlap([_folded(match) for match in said], [_folded(match) for match in asked])
    if not asked or repeated < min(LEAST_ECHO, len(asked)):
        return text
    return _without_start(text[said[repeated - 1].end() :], prompt[asked[-1].end() :].strip(_BETWEEN))


def _without_start(text: str, start: str) -> str:
    """The text without the punctuation that the prompt ends in."""
    rest = text.lstrip(_BETWEEN)
    return rest[len(start) :] if start and rest.startswith(start) else text


def _folded(word: re.Match[str]) -> str:
    return word.group().casefold().replace("’", "'")


def _overlap(said: Sequence[str], asked: Sequence[str]) -> int:
    """How many of the first words said are the last words asked: the longest border, found in one pass."""
    joined: list[str | None] = [*said, None, *asked]
    borders = [0] * len(joined)
    for i in range(1, len(joined)):
        length = borders[i - 1]
        while length and joined[i] != joined[length]:
            length = borders[length - 1]
        borders[i] = length + (joined[i] == joined[length])
    return min(borders[-1], len(said))
