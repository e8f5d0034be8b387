"""Removes the speaker's persona from a statement: "As a 40-year-old, I think …" becomes "I think …".

Otherwise a policy learns to play a role, and a reward model learns who speaks instead of how biased a statement is.
Only what speakers say about themselves is removed; what they say about groups of people is content and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# All repetitions are bounded, so that no text of a model can make matching slow.
_CLAUSE = r"[^,.;:!?\n]{1,120}?"
_START = r"(?P<before>^|[.!?]\s{1,9}|\n\s{0,9})(?:(?:well|yes|no|but|and|so|personally|honestly),?\s{1,3})?"
_SELF = r"(?:I|I['’]\w{1,2}|my|me)\b"
_END = rf"(?:,\s{{0,9}}|\s{{1,3}}(?={_SELF}))"
_LENS = r"(?:perspective|point\s+of\s+view|viewpoint|standpoint|position|experience|role|view|opinion)"
_OPENING = re.compile(
    rf"{_START}(?:speaking\s+as|(?:from|in)\s+(?:my|the)\s+(?:own\s+|personal\s+)?{_LENS}\s+(?:as|of))\s+{_CLAUSE}{_END}",
    re.IGNORECASE,
)
"""A sentence that opens with "Speaking as …" or "From my perspective as …"."""
_AS = re.compile(
    rf"{_START}(?:as|being)\s+(?P<who>{_CLAUSE}){_END}(?=(?P<next>(?:I|I['’]\w{{1,2}}|my|we|our)\b)?)", re.IGNORECASE
)
"""A sentence that opens with "As …". It may also be "As a result, …", so the words named and the next word decide."""
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
"""Words of a role's name that do not identify it."""

_Match = re.Match[str]


def without_persona(text: str, role: str) -> tuple[str, int]:
    """Return the statement of `role` without its persona phrases, and how many were removed."""
    words = role_words(role)

    def is_role(match: _Match) -> bool:
        who = _words(match["who"])
        return not words.isdisjoint([*who, *(word.removesuffix("s") for word in who)]) or bool(
            _YEARS.search(match["who"])
        )

    def names_self(match: _Match) -> bool:
        # "As a parent, I" is a persona, and so is "As doctors, we" of a doctor.
        # "As a hobby, it" and "As time goes, I" are not.
        who, next_word = match["who"], (match["next"] or "").lower()
        if not _ONE.match(who):
            return bool(next_word) and is_role(match)
        return is_role(match) or (next_word[:1] in ("i", "m") and not _IDIOM.match(who))

    def of_speaker(match: _Match) -> bool:
        return is_role(match) or match["before"] is not None

    patterns = (
        (_LABEL, is_role),
        (_INTRODUCTION, is_role),
        (_OPENING, None),
        (_AS, names_self),
        (_WITHIN, of_speaker),
    )
    text, count = text.strip(), 0
    for pattern, is_persona in patterns:
        text, removed = _without(pattern, text, is_persona)
        count += removed
    return text, count


def role_words(role: str) -> frozenset[str]:
    """Return the words that identify a role, in lower case."""
    return frozenset(_words(role)) - _COMMON


def names_role(text: str, role: str) -> bool:
    """Whether a text contains the full name of the role."""
    return f" {' '.join(_words(role))} " in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _without(pattern: re.Pattern[str], text: str, is_persona: Callable[[_Match], bool] | None) -> tuple[str, int]:
    """Remove the matches that are personas; a word that then begins a sentence gets a capital letter."""
    kept, rest, place, count = "", text, 0, 0
    for match in pattern.finditer(text):
        if is_persona is not None and not is_persona(match):
            continue
        before, count = match["before"], count + 1
        kept += rest[: match.start() - place] + (before or "")
        rest, place = text[match.end() :], match.end()
        if before is not None and not before.strip(" .!?\t\n"):
            rest = rest[:1].upper() + rest[1:]
    return kept + rest, count
