"""Looks for BBQ's text in training text: what is tested on must not be trained on.

A text leaks when it holds eight words of BBQ in a row, or a whole question of five to seven. (The paper's published
data holds contexts of BBQ word for word.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.data.bbq import CATEGORIES, BuiltinRows, OfficialFiles, Source
from evenhand.data.locate import find_set
from evenhand.errors import DataError

SIZE = 8
"""Words in a row that are no chance."""
LEAST = 5
"""A shorter question ("Who is old?") may be anybody's."""
UNCHECKED = (
    "BBQ is not on this machine: the official questions were not looked for. Fetch it with evenhand data pull bbq."
)

# Letters and digits; an apostrophe inside a word belongs to it, whichever it is.
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


@dataclass(frozen=True, slots=True)
class LeakCheck:
    """The word sequences of the data sets that were looked at."""

    grams: frozenset[int]
    sizes: frozenset[int]
    checked: Mapping[str, Mapping[str, str]]
    """Set → what identifies its content."""
    unchecked: str | None = None
    """What could not be looked at, as a sentence."""

    def leak_in(self, text: str) -> str | None:
        """The first words of the text that are BBQ's, or None."""
        words = _words(text)
        found = (gram for size in sorted(self.sizes, reverse=True) for gram in _grams(words, size))
        return next((gram for gram in found if hash(gram) in self.grams), None)

    def note(self) -> dict[str, Any]:
        """What was checked, for the record."""
        return {"words": SIZE, "checked": self.checked, "unchecked": self.unchecked}


def load_check(data: str | Path | None = None) -> LeakCheck:
    """The check against the built-in questions, and the official ones where they are; a folder that is named must
    hold them."""
    sources: dict[str, Source] = {"bbq_builtin": BuiltinRows()}
    unchecked = None
    try:
        sources["bbq"] = OfficialFiles(find_set("bbq", data))
    except DataError:
        if data is not None:
            raise
        unchecked = UNCHECKED
    texts = {text for source in sources.values() for text in _texts(source)}
    grams: set[int] = set()
    sizes: set[int] = set()
    for text in texts:
        words = _words(text)
        size = min(SIZE, len(words))
        if size >= LEAST:
            sizes.add(size)
            grams.update(map(hash, _grams(words, size)))
    hashes = {name: source.hashes(CATEGORIES) for name, source in sources.items()}
    return LeakCheck(frozenset(grams), frozenset(sizes), hashes, unchecked)


def _texts(source: Source) -> Iterator[str]:
    for category in CATEGORIES:
        for item in source.items(category):
            yield item.context
            yield item.question


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("’", "'"))


def _grams(words: list[str], size: int) -> Iterable[str]:
    return (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))
