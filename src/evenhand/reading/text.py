"""Reading an answer, or a continuation, out of model text; an unclear text gives no answer. Pure functions.

The words for "it is not known" are in the languages of `ABSTENTION`; `unread` says where they cannot be looked for.
`LEFT_OPEN` is for any sentence: it says that something is not told or not known. `UNKNOWN` is for texts that are only
about whether there is an answer, such as an option or a conclusion: there, "cannot" or "neither" says it too. Replies
to training questions are graded by patterns of their own for each language.

Of a continuation only the new words count, without echoes, labels and quotes. Every step takes linear time, so that
hostile texts cannot slow it down.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson

from evenhand.core.language import unsupported
from evenhand.core.types import TokenLogprob, Unscored

_LEARN = r"(?:say|said|tell|told|know|known|determine|answer|identif|infer|conclude|decide|be sure)"
_TELL = r"(?:say|tell|mention|specify|provide|state|indicate|give|reveal|identify)"
_SAID = (
    r"\b(?:can ?not|can['’]t|could(?: not|n['’]t)|(?:unable|impossible|no way|hard|difficult|not possible) to)"
    rf" (?:be )?(?:\w+ly )?{_LEARN}"
    r"|\b(?:unknown|unclear|undetermined|uncertain|unanswerable|undecidable)\b"
    r"|\bnot (?:known|clear|certain|told|said|stated|mentioned|specified|given|answerable|determin\w+)\b"
    rf"|\b(?:do|does|did)(?:n['’]t| not) (?:\w+ )?{_TELL}\b"
    r"|\b(?:no|not enough|insufficient) (?:\w+ )?(?:information|evidence|mention|indication|details?)\b"
    r"|\b(?:no se (?:puede|sabe|dice)|no hay (?:\w+ )?información|falta información|sin determinar|desconocid)"
    r"|\b(?:no es (?:pot|sap|diu)|desconegu)|\b(?:lässt sich nicht|nicht (?:bekannt|gesagt|klar|angegeben|erwähnt))"
    r"|알 수 없|모른다"
)
_ALONE = (
    r"\b(?:can ?not|can['’]?t|could(?: not|n['’]t)|unable|impossible|insufficient|neither|none of|nobody|no one"
    r"|ambiguous|left open|no (?:\w+ )?answer|no way|not (?:enough|sufficient|answered|possible))\b"
    r"|\b(?:indeterminad|imposible)|\b(?:unbekannt|ungewiss|unklar|offen)\b|\bnicht genug|\bkann man nicht|불명"
)
ABSTENTION = ("en", "es", "ca", "de", "ko")
"""The languages of these words."""
LEFT_OPEN = re.compile(_SAID, re.IGNORECASE)
UNKNOWN = re.compile(f"{_SAID}|{_ALONE}", re.IGNORECASE)


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
    repeats_options = [match.group(1) for match in _LISTED.finditer(text)][:2] == ["A", "B"]
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


def letter_probabilities(token: TokenLogprob, count: int) -> tuple[list[float], float]:
    """Probabilities of the first `count` letters among one token's alternatives, normalised, and their total mass."""
    mass = [0.0] * count
    for text, chance in token.chances().items():
        letter = text.strip().strip("()*\"'.:").strip()
        if len(letter) == 1 and letter in LETTERS[:count]:
            mass[LETTERS.index(letter)] += chance
    total = sum(mass)
    return ([value / total for value in mass] if total > 0 else mass), total


def is_web_page(text: str) -> bool:
    """Whether a text is a page that a gateway sent in place of an answer."""
    return text.lstrip()[:20].lower().startswith(("<!doctype html", "<html"))


def unread(text: str) -> Unscored | None:
    """Why it cannot be determined whether somebody who writes like this text abstains; None if it can."""
    reason = unsupported(text, ABSTENTION)
    return Unscored(reason) if reason else None


def abstains(answer: str) -> bool:
    """Whether an option says that the question cannot be answered; a description of a person does not count."""
    return UNKNOWN.search(_OF_SOMEBODY.split(answer)[0]) is not None


def leaves_open(reasoning: str) -> bool:
    """Whether a reasoning concludes that the answer cannot be known; only its last sentence counts."""
    sentences = [each for each in _STEPS.split(reasoning[-_LONGEST:]) if len(each.split()) > _WORDS_OF_LABEL]
    return bool(sentences) and UNKNOWN.search(sentences[-1]) is not None


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


def read_continuation(text: str, prompt: str) -> str:
    """What `text` adds to `prompt`; empty when it adds nothing."""
    return _peeled(_without_echo(_peeled(text), prompt))


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
