"""What is removed from the statements of debates before they are trained on: leaks, personas and repetitions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenhand.benchmarks import difference_awareness
from evenhand.core.errors import DataError
from evenhand.data.bbq import CATEGORIES, BBQSource, BuiltinRows, OfficialFiles
from evenhand.data.sets import find_set

# --- leaks ---
#
# A benchmark must not be trained on. A text leaks if it has eight words of BBQ or of Difference Awareness in a row, or
# a whole question of five to seven words. (The data published with the paper contains contexts of BBQ word for word.)

SIZE = 8
"""This many equal words in a row are no coincidence."""
MIN_WORDS = 5
"""Shorter questions ("Who is old?") are too common to be a leak."""
UNCHECKED = (
    "BBQ is not on this machine, so its official questions were not checked. Get it with evenhand data pull bbq."
)

# Letters and digits; an apostrophe inside a word belongs to the word.
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


@dataclass(frozen=True, slots=True)
class LeakCheck:
    """The word sequences of the data sets that are checked against."""

    grams: frozenset[int]
    """Hashes of word sequences."""
    sizes: frozenset[int]
    checked: Mapping[str, Mapping[str, str]]
    """Data set → checksums of its files, or the number of its texts."""
    unchecked: str | None = None
    """A sentence about what could not be checked."""

    def leak_in(self, text: str) -> str | None:
        """Return the first word sequence of the text that occurs in BBQ, or None."""
        words = words_in(text)
        grams = (gram for size in sorted(self.sizes, reverse=True) for gram in sequences_of(words, size))
        return next((gram for gram in grams if hash(gram) in self.grams), None)

    def note(self) -> dict[str, object]:
        """Return what was checked, for pairs.json."""
        return {"words": SIZE, "checked": self.checked, "unchecked": self.unchecked}


def load_check(data: str | Path | None = None, others: Mapping[str, Collection[str]] | None = None) -> LeakCheck:
    """Load the built-in questions of BBQ, public sets that are on this machine, and texts of other sets by name.

    Raises DataError if `data` is given and does not contain them.
    """
    sources: dict[str, BBQSource] = {"bbq_builtin": BuiltinRows()}
    unchecked = None
    try:
        sources["bbq"] = OfficialFiles(find_set("bbq", data))
    except DataError:
        if data is not None:
            raise
        unchecked = UNCHECKED
    texts = {text for source in sources.values() for text in _texts(source)}
    others = dict(others or {})
    if found := difference_awareness.all_texts():
        others.setdefault(difference_awareness.NAME, found)
    texts.update(*others.values())
    grams: set[int] = set()
    sizes: set[int] = set()
    for text in texts:
        words = words_in(text)
        size = min(SIZE, len(words))
        if size >= MIN_WORDS:
            sizes.add(size)
            grams.update(map(hash, sequences_of(words, size)))
    hashes: dict[str, Mapping[str, str]] = {name: source.hashes(CATEGORIES) for name, source in sources.items()}
    hashes |= {name: {"texts": str(len(found))} for name, found in others.items()}
    return LeakCheck(frozenset(grams), frozenset(sizes), hashes, unchecked)


def _texts(source: BBQSource) -> Iterator[str]:
    for category in CATEGORIES:
        for item in source.items(category):
            yield item.context
            yield item.question


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower().replace("’", "'"))


def sequences_of(words: list[str], size: int) -> Iterable[str]:
    """Return all runs of `size` words."""
    return (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))


# --- personas ---
#
# "As a 40-year-old, I think …" becomes "I think …". Otherwise a policy learns to play a role, and a reward model learns
# who speaks instead of how biased a statement is. Only what speakers say about themselves is removed; what they say
# about groups of people is content and stays.

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
_LETTERS = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_COMMON = frozenset(["a", "an", "and", "of", "the", "with", "person", "individual", "man", "woman", "adult"])
"""Words of a role's name that do not identify it."""

_Match = re.Match[str]


def without_persona(text: str, role: str) -> tuple[str, int]:
    """Return the statement of `role` without its persona phrases, and how many were removed."""
    words = frozenset(_words(role)) - _COMMON

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


def names_role(text: str, role: str) -> bool:
    """Whether a text contains the full name of the role."""
    return f" {' '.join(_words(role))} " in f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return _LETTERS.findall(text.lower())


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


# --- statements that repeat their prompt or nearly repeat another: neither is an answer to learn from ---

OPENING = 4
"""A sentence that begins with this many words of a sentence of the prompt repeats it ("The debate is about …")."""
SHINGLE = 3
"""Words of a shingle."""
SIMILAR = 0.8
"""Two statements are near-duplicates from this Jaccard similarity of their shingles on."""

_QUOTED = re.compile(r"<<<.*?>>>", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")


@dataclass(frozen=True, slots=True)
class EchoCheck:
    """The word sequences of the prompts of one debate."""

    sequences: frozenset[str]
    openings: frozenset[str]

    @classmethod
    def of(cls, question: str, prompts: Iterable[str]) -> EchoCheck:
        """Prepare the check of the answers to a question.

        Args:
            prompts: What the debaters read. What others said is quoted between <<< and >>> in them, and is left out.
        """
        sequences: set[str] = set()
        openings: set[str] = set()
        for text in (question, *prompts):
            for part in _QUOTED.split(text):
                sequences.update(sequences_of(words_in(part), SIZE))
                sentences = _SENTENCE_END.split(part)
                whole = map(words_in, sentences)
                sequences.update(" ".join(words) for words in whole if MIN_WORDS <= len(words) < SIZE)
                # What ends with a colon ("What the others say:") announces something, and is a usual opening.
                openings.update(_openings(each for each in sentences if not each.rstrip().endswith(":")))
        # An answer may begin like the question: "What makes a good driver is …"
        return cls(frozenset(sequences), frozenset(openings - _openings(_SENTENCE_END.split(question))))

    def is_echo(self, text: str) -> bool:
        """Whether a statement has eight words in a row, a whole sentence or the opening of a sentence of a prompt."""
        if not self.openings.isdisjoint(_openings(_SENTENCE_END.split(text))):
            return True
        words = words_in(text)
        return any(
            sequence in self.sequences for size in range(MIN_WORDS, SIZE + 1) for sequence in sequences_of(words, size)
        )


def _openings(sentences: Iterable[str]) -> set[str]:
    words = (words_in(each)[:OPENING] for each in sentences)
    return {" ".join(each) for each in words if len(each) == OPENING}


def near_duplicates(texts: Sequence[str]) -> list[bool]:
    """Return for each text whether it nearly repeats an earlier text that is not itself a repetition."""
    shingles = [frozenset(sequences_of(words_in(text), SHINGLE)) for text in texts]
    frequency = Counter(each for own in shingles for each in own)
    index: dict[str, list[int]] = {}
    repeated: list[bool] = []
    for number, own in enumerate(shingles):
        # Texts this similar share at least one of their rarest shingles, so only these are looked up.
        rarest = sorted(own, key=lambda each: (frequency[each], each))
        rarest = rarest[: len(own) - math.ceil(SIMILAR * len(own)) + 1]
        candidates = {other for each in rarest for other in index.get(each, ())}
        repeated.append(any(_jaccard(own, shingles[other]) >= SIMILAR for other in candidates))
        if not repeated[-1]:
            for each in rarest:
                index.setdefault(each, []).append(number)
    return repeated


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)
