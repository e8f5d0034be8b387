"""Finds questions that repeat a benchmark: eight equal words in a row, or a sentence equal but for its people."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError
from evenhand.core.files import json_lines, read_bytes
from evenhand.data.bbq import CATEGORIES, BBQSource, BuiltinRows, OfficialFiles
from evenhand.data.locate import find_set
from evenhand.training.pairs.cleaning import LeakCheck, load_check
from evenhand.training.questions.row import Row

LEAST_WORDS = 4
"""Words of a sentence besides its people, for it to count as a template."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_ARTICLE = re.compile(r"^(?:the|an?|el|la|los|las|un|una|l'|els|les) ?", re.IGNORECASE)
_BEFORE_MASK = re.compile(r"\b(?:the|an?|el|la|un|una|der|die|das|eine?) (?=_)")
_WORD = re.compile(r"\w+")
_SUFFIXES = (".csv", ".tsv", ".jsonl", ".csv.gz", ".tsv.gz", ".jsonl.gz")

Texts = tuple[str, str, tuple[str, ...]]
"""Context, question, answers."""


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """What training questions must not repeat."""

    grams: LeakCheck
    templates: frozenset[str]

    def leak_in(self, row: Row) -> str | None:
        """What of the row stands in a benchmark, or None."""
        text = f"{row.context} {row.question}" if row.context else row.messages[-1]["content"]
        if leak := self.grams.leak_in(text):
            return leak
        people = tuple(sorted({alias for each in row.people for alias in each}))
        return next((each for each in _masked(row.context, people) if each in self.templates), None)

    def note(self) -> dict[str, Any]:
        return {**self.grams.note(), "templates": len(self.templates)}


def load_benchmarks(data: str | Path | None = None, folders: Sequence[Path] = ()) -> Benchmarks:
    """Load the built-in questions, BBQ where it is found (or in `data`), and questions or texts of other folders."""
    texts = [*_of_source(BuiltinRows())]
    try:
        texts += _of_source(OfficialFiles(find_set("bbq", data)))
    except DataError:
        if data is not None:
            raise
    others = {folder.name: list(_of_folder(folder)) for folder in folders}
    texts += [each for found in others.values() for each in found]
    more = {name: {text for each in found for text in each[:2]} for name, found in others.items()}
    passages = {(context, tuple(sorted(answers))) for context, _, answers in texts}
    templates = {each for context, answers in passages for each in _masked(context, answers)}
    return Benchmarks(load_check(data, more), frozenset(templates))


def _of_source(source: BBQSource) -> Iterator[Texts]:
    for category in CATEGORIES:
        for item in source.items(category):
            yield item.context, item.question, tuple(item.answers)


def _of_folder(folder: Path) -> Iterator[Texts]:
    files = [path for path in sorted(folder.glob("*")) if path.name.endswith(_SUFFIXES)]
    if not files:
        raise DataError("There is no .csv, .tsv or .jsonl file here to check against.", file=folder)
    for path in files:
        for fields in _records(path):
            if isinstance(fields.get("text"), str):
                yield "", fields["text"], ()
            elif isinstance(fields.get("context"), str) and isinstance(fields.get("question"), str):
                answers = tuple(str(fields[name]) for name in ("ans0", "ans1", "ans2") if fields.get(name))
                yield fields["context"], fields["question"], answers


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if ".jsonl" in path.name:
        return (row for _, row in json_lines(path))
    text = read_bytes(path).decode("utf-8")
    return csv.DictReader(io.StringIO(text), delimiter="\t" if ".tsv" in path.name else ",")


def _masked(text: str, people: tuple[str, ...]) -> Iterator[str]:
    """The sentences of a text without its people, where enough is left of them."""
    masked = text.lower()
    for noun in _nouns(people):
        masked = masked.replace(noun, "_")
    masked = _BEFORE_MASK.sub("", masked)
    for sentence in _SENTENCE.split(masked):
        words = _WORD.findall(sentence)
        if len(words) - words.count("_") >= LEAST_WORDS:
            yield " ".join(words)


@cache
def _nouns(people: tuple[str, ...]) -> list[str]:
    """What to mask, longest first."""
    return sorted({_ARTICLE.sub("", each).lower() for each in people if each} - {""}, key=len, reverse=True)
