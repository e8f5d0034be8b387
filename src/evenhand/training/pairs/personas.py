"""Takes the speaker's mask off a statement: "As a 40-year-old, I think …" becomes "I think …".

Otherwise a policy learns to speak as somebody, and a reward model learns who speaks instead of how biased it is. Only
what a speaker says of itself goes; what it says about groups of people is the content and stays. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Bounded throughout: what models write must not cost time.
_CLAUSE = r"[^,.;:!?\n]{1,120}?"
_START = r"(?P<before>^|[.!?]\s{1,9}|\n\s{0,9})(?:(?:well|yes|no|but|and|so|personally|honestly),?\s{1,3})?"
_SELF = r"(?:I|I['’]\w{1,2}|my|me)\b"
_END = rf"(?:,\s{{0,9}}|\s{{1,3}}(?={_SELF}))"
_LENS = r"(?:perspective|point\s+of\s+view|viewpoint|standpoint|position|experience|role|view|opinion)"
_OPENING = re.compile(
    rf"{_START}(?:speaking\s+as|(?:from|in)\s+(?:my|the)\s+(?:own\s+|personal\s+)?{_LENS}\s+(?:as|of))\s+{_CLAUSE}{_END}",
    re.IGNORECASE,
)
"""A sentence that opens by saying as whom it is spoken."""
_AS = re.compile(
    rf"{_START}(?:as|being)\s+(?P<who>{_CLAUSE}){_END}(?=(?P<next>(?:I|I['’]\w{{1,2}}|my|we|our)\b)?)", re.IGNORECASE
)
"""The same with a bare "as", which may also begin "As a result,": who it names, or who goes on, decides."""
_WITHIN = re.compile(
    rf"(?P<before>\bI\b)?,?\s{{1,3}}(?:speaking\s+)?as\s+(?P<who>(?:an?|someone|somebody|the)\s{_CLAUSE}),",
    re.IGNORECASE,
)
_INTRODUCTION = re.compile(
    rf"(?P<before>^)(?:(?:hello|hi)[,.!]?\s+)?I(?:\s+am|['’]m)\s+(?P<who>an?\s{_CLAUSE})[.!]\s+", re.IGNORECASE
)
_LABEL = re.compile(r"(?P<before>^)[*_]{0,3}(?P<who>[^:\n]{1,60}):[*_]{0,3}\s+")
_YEARS = re.compile(r"\b(?:\d{1,3}|twenty|thirty|forty|fifty|sixty|seventy|eighty)[- ]years?[- ]old\b", re.IGNORECASE)
_ONE = re.compile(r"(?:an?|the|one|someone|somebody)\b", re.IGNORECASE)
_IDIOM = re.compile(
    r"(?:an?|the)\s(?:direct\s|general\s|final\s|first\s|last\s)?"
    r"(?:results?|consequence|matter|rule|whole|start|reminder|note|example|step|resort|society|community|compromise)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_COMMON = frozenset(["a", "an", "and", "of", "the", "with", "person", "individual", "man", "woman", "adult"])
"""Words of a role's name that do not tell who it is."""

_Found = re.Match[str]


def without_persona(text: str, role: str) -> tuple[str, int]:
    """The statement of `role` without what it says about being that role, and how many phrases went."""
    words = role_words(role)

    def named(found: _Found) -> bool:
        said = _words(found["who"])
        return not words.isdisjoint([*said, *(word.removesuffix("s") for word in said)]) or bool(
            _YEARS.search(found["who"])
        )

    def self_named(found: _Found) -> bool:
        # "As a parent, I" is a mask, and "As doctors, we" of a doctor; "As a hobby, it" and "As time goes, I" are none.
        who, goes_on = found["who"], (found["next"] or "").lower()
        if not _ONE.match(who):
            return bool(goes_on) and named(found)
        return named(found) or (goes_on[:1] in ("i", "m") and not _IDIOM.match(who))

    def of_speaker(found: _Found) -> bool:
        return named(found) or found["before"] is not None

    masks = ((_LABEL, named), (_INTRODUCTION, named), (_OPENING, None), (_AS, self_named), (_WITHIN, of_speaker))
    text, count = text.strip(), 0
    for pattern, is_mask in masks:
        text, dropped = _without(pattern, text, is_mask)
        count += dropped
    return text, count


def role_words(role: str) -> frozenset[str]:
    """What tells a role from others, in lower case."""
    return frozenset(_words(role)) - _COMMON


def names_role(text: str, role: str) -> bool:
    """Whether a text holds the role's name as a whole."""
    return f" {' '.join(_words(role))} " in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _without(pattern: re.Pattern[str], text: str, is_mask: Callable[[_Found], bool] | None) -> tuple[str, int]:
    """The text without the masks; what then begins a sentence begins with a capital letter."""
    kept, rest, place, count = "", text, 0, 0
    for found in pattern.finditer(text):
        if is_mask is not None and not is_mask(found):
            continue
        before, count = found["before"], count + 1
        kept += rest[: found.start() - place] + (before or "")
        rest, place = text[found.end() :], found.end()
        if before is not None and not before.strip(" .!?\t\n"):
            rest = rest[:1].upper() + rest[1:]
    return kept + rest, count
