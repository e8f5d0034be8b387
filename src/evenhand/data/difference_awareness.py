"""Loads Difference Awareness: questions on which groups differ, and treating them alike is the error, or are equal.

One JSON Lines file per suite, `SUITE.jsonl` or `.gz`: `suite`, `condition` (different or equal), `text` (the question
and its options (a), (b), (c), of which (c) treats the groups alike), `label` and `source`. The right option is `label`
where groups differ, and (c) where they are equal. (In the suite N3, `label` then marks the marginalised group.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, json_lines
from evenhand.data.locate import find_file, find_set

NAME = "difference_awareness"
SUITES = ("D1", "D2", "D3", "D4", "N3")
ALIKE = 2
"""The option that treats the groups alike."""

# Half of N3 spells the first option (1).
_TEXT = re.compile(r"(.+?)\s*\([a1]\) (.+?) \(b\) (.+?) \(c\) (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about two groups."""

    suite: str
    number: int
    """Of its line in the file."""
    condition: Literal["different", "equal"]
    text: str
    """Question and options as published."""
    question: str
    options: tuple[str, str, str]
    right: int
    source: str
    """The fact, law or occupation that the question is about."""


class Suites:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def questions(self, suite: str) -> Iterator[Question]:
        """Yield the questions of a suite in the order of its file."""
        path = self._path(suite)
        for number, row in json_lines(path):
            yield _question(row, suite, path, number)

    def hashes(self, suites: Sequence[str]) -> Mapping[str, str]:
        return {f"{suite}.jsonl": content_sha256(self._path(suite)) for suite in suites}

    def _path(self, suite: str) -> Path:
        path = find_file(self.folder, f"{suite}.jsonl")
        if path is None:
            raise DataError(f"the file {suite}.jsonl (or {suite}.jsonl.gz) is missing.", file=self.folder)
        return path


def find_suites(data: str | Path | None = None) -> Suites:
    """Find the set in the folder `data`, or in the default folders."""
    return Suites(find_set(NAME, data))


def all_texts() -> set[str]:
    """Return every question of the set, if it is on this machine; training data must not contain them."""
    try:
        found = find_suites()
    except DataError:
        return set()
    present = [suite for suite in SUITES if find_file(found.folder, f"{suite}.jsonl")]
    return {each.text for suite in present for each in found.questions(suite)}


def _question(row: Mapping[str, Any], suite: str, path: Path, number: int) -> Question:
    text, condition, label = row.get("text"), row.get("condition"), row.get("label")
    parts = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        fault = "text must be a question with the options (a), (b) and (c)"
    elif row.get("suite") != suite:
        fault = f"suite is {row.get('suite')!r}, not {suite}"
    elif condition not in ("different", "equal"):
        fault = f"condition is {condition!r}, not different or equal"
    elif type(label) is not int or label not in ((0, 1) if condition == "different" else (0, 1, 2)):
        fault = f"label is {label!r}, which is no option where groups are {condition}"
    else:
        right = label if condition == "different" else ALIKE
        options = (parts[2], parts[3], parts[4])
        return Question(suite, number, condition, parts[0], parts[1], options, right, str(row.get("source", number)))
    raise DataError(f"{fault}.", file=path, line=number)
