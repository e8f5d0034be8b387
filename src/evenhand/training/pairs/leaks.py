"""Finds text of BBQ and of Difference Awareness in training data, because a benchmark must not be trained on.

A text leaks if it contains eight words of a set in a row, or a whole question of five to seven words. (The data
published with the paper contains contexts of BBQ word for word.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError
from evenhand.data import difference_awareness
from evenhand.data.bbq import CATEGORIES, BuiltinRows, OfficialFiles, Source
from evenhand.data.locate import find_set

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

    def note(self) -> dict[str, Any]:
        """Return what was checked, for pairs.json."""
        return {"words": SIZE, "checked": self.checked, "unchecked": self.unchecked}


def load_check(data: str | Path | None = None, others: Mapping[str, Collection[str]] | None = None) -> LeakCheck:
    """Load the built-in questions of BBQ, public sets that are on this machine, and texts of other sets by name.

    Raises DataError if `data` is given and does not contain them.
    """
    sources: dict[str, Source] = {"bbq_builtin": BuiltinRows()}
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


def _texts(source: Source) -> Iterator[str]:
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
