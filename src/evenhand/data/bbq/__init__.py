"""Reads BBQ's questions from the official files, or generates them from the built-in templates.

The official `additional_metadata.csv` says which answer confirms the stereotype (`target_loc`, polarity
included); rows are joined on (category, question_index, example_id). 64 of its keys occur twice with the same
values, and 16 rows (Gender_identity, question 13) have no target: their `target_loc` is None. Errors in the
published texts are not corrected.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Literal

import orjson

from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, json_object, lines, seekable
from evenhand.data.bbq.generate import CATEGORIES, builtin_rows
from evenhand.data.sets import find_file

__all__ = ["CATEGORIES", "BBQSource", "BuiltinRows", "CategoryReader", "Item", "ListReader", "OfficialFiles"]

Condition = Literal["ambig", "disambig"]
Polarity = Literal["neg", "nonneg"]
Mark = tuple[int | None, str]
"""(target_loc, label_type)"""
Marks = dict[tuple[str, str], dict[int, Mark]]
"""(category, question_index) → example_id → mark."""

METADATA = "additional_metadata.csv"
_COLUMNS = ("category", "question_index", "example_id", "target_loc", "label_type")
_AGAIN = "Download the official files again: evenhand data pull bbq."


@dataclass(frozen=True, slots=True)
class Item:
    """One BBQ question with the meaning of its answers."""

    category: str
    example_id: int
    question_index: str
    condition: Condition
    polarity: Polarity
    context: str
    question: str
    answers: tuple[str, str, str]
    label: int
    unknown: int
    target_loc: int | None
    label_type: str

    @property
    def id(self) -> str:
        return f"{self.category}-{self.example_id}"


class CategoryReader(AbstractContextManager["CategoryReader"]):
    """Reads the items of one category, in order or at a given position."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int, Item]]:
        """Yield all items with their positions, in order."""

    @abstractmethod
    def at(self, position: int) -> Item:
        """Return the item at a position that `scan` returned."""

    def __exit__(self, *_: object) -> None:
        """Release the files."""


class BBQSource(ABC):
    """A source of BBQ items."""

    @abstractmethod
    def reader(self, category: str) -> CategoryReader:
        """Return a reader of one category."""

    def repeated(self, category: str) -> Container[int]:
        """Return the example_ids that the metadata list twice."""
        del category
        return ()

    @abstractmethod
    def hashes(self, categories: Sequence[str]) -> Mapping[str, str]:
        """Return hashes that identify the content of these categories."""

    def items(self, category: str) -> Iterator[Item]:
        with self.reader(category) as reader:
            for _, item in reader.scan():
                yield item


class OfficialFiles(BBQSource):
    """The official `CATEGORY.jsonl` files and `additional_metadata.csv` in one folder, plain or as .gz."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reader(self, category: str) -> CategoryReader:
        return _FileReader(self._path(f"{category}.jsonl"), category, self._marks)

    def repeated(self, category: str) -> Container[int]:
        rows = _metadata_rows(self._path(METADATA), {})
        listed = Counter(example_id for name, _, example_id, _ in rows if name == category)
        return {example_id for example_id, times in listed.items() if times > 1}

    def hashes(self, categories: Sequence[str]) -> Mapping[str, str]:
        names = [*(f"{category}.jsonl" for category in categories), METADATA]
        return {name: content_sha256(self._path(name)) for name in names}

    @cached_property
    def _marks(self) -> Marks:
        return read_marks(self._path(METADATA))

    def _path(self, name: str) -> Path:
        # A clone of the official repository keeps the metadata apart from the questions.
        path = find_file(self.folder, name) or find_file(self.folder.parent / "analysis_scripts", name)
        if path is None:
            raise DataError(f"the file {name} (or {name}.gz) is missing. {_AGAIN}", file=self.folder)
        return path


class BuiltinRows(BBQSource):
    """The built-in set of a language, kept in memory."""

    def __init__(self, language: str = "en") -> None:
        self.language = language

    def reader(self, category: str) -> CategoryReader:
        return ListReader(_builtin_items(self.language).get(category, []))

    def hashes(self, categories: Sequence[str]) -> Mapping[str, str]:
        return {"built-in rows": _builtin_hash(self.language, frozenset(categories))}


@cache
def _builtin_items(language: str) -> Mapping[str, Sequence[Item]]:
    items: dict[str, list[Item]] = {}
    for number, row in enumerate(builtin_rows(language), 1):
        item = read_item(row, row["category"], "built-in BBQ rows", number)
        items.setdefault(item.category, []).append(item)
    return items


@cache
def _builtin_hash(language: str, categories: frozenset[str]) -> str:
    digest = hashlib.sha256()
    for row in builtin_rows(language):
        if row["category"] in categories:
            digest.update(orjson.dumps(row, option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest()


class _FileReader(CategoryReader):
    """Reads a category file; positions are byte offsets."""

    def __init__(self, path: Path, category: str, marks: Marks) -> None:
        self._path, self._category, self._marks = path, category, marks
        self._content: IO[bytes] | None = None

    def scan(self) -> Iterator[tuple[int, Item]]:
        seen: set[int] = set()
        position = 0
        for number, line in lines(self._path):
            if line.strip():
                item = self._item(line, number)
                if item.example_id in seen:
                    raise DataError(
                        f"example_id {item.example_id} occurs twice. {_AGAIN}", file=self._path, line=number
                    )
                seen.add(item.example_id)
                yield position, item
            position += len(line)

    def at(self, position: int) -> Item:
        if self._content is None:
            self._content = seekable(self._path)
        self._content.seek(position)
        return self._item(self._content.readline(), None)

    def __exit__(self, *_: object) -> None:
        if self._content is not None:
            self._content.close()

    def _item(self, line: bytes, number: int | None) -> Item:
        row = json_object(line, self._path, number)
        # Converted to text, so that `read_item` reports a wrong type with the name of the field.
        marks = self._marks.get((self._category, str(row.get("question_index"))), {})
        example_id = row.get("example_id")
        if isinstance(example_id, int) and example_id in marks:
            row["target_loc"], row["label_type"] = marks[example_id]
        return read_item(row, self._category, self._path, number)


class ListReader(CategoryReader):
    """Reads items in memory; positions are list indices."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def scan(self) -> Iterator[tuple[int, Item]]:
        yield from enumerate(self._items)

    def at(self, position: int) -> Item:
        return self._items[position]


def read_item(row: Mapping[str, Any], category: str, file: Path | str, line: int | None) -> Item:
    """Parse a row in the official format, with `target_loc` and `label_type` added."""
    try:
        return _checked_item(row, category)
    except KeyError as error:
        raise DataError(f"the field {error} is missing. {_AGAIN}", file=file, line=line) from error
    except (IndexError, TypeError, ValueError) as error:
        raise DataError(f"{error}. {_AGAIN}", file=file, line=line) from error


def _checked_item(row: Mapping[str, Any], category: str) -> Item:
    example_id, question_index = row["example_id"], row["question_index"]
    _check(type(example_id) is int, "example_id is not a whole number")
    _check(type(question_index) is str, "question_index is not a text")
    _check(row["category"] == category, "category is %r, not %s", row["category"], category)
    condition, polarity, label = row["context_condition"], row["question_polarity"], row["label"]
    _check(condition in ("ambig", "disambig"), "context_condition is %r, not ambig or disambig", condition)
    _check(polarity in ("neg", "nonneg"), "question_polarity is %r, not neg or nonneg", polarity)
    _check(type(label) is int and 0 <= label <= 2, "label is %r, not 0, 1 or 2", label)
    texts = (row["context"], row["question"], row["ans0"], row["ans1"], row["ans2"])
    _check(all(type(text) is str for text in texts), "context, question and answers must be texts")
    info = row["answer_info"]
    groups = (info["ans0"][1], info["ans1"][1], info["ans2"][1])
    _check(groups.count("unknown") == 1, "answer_info must mark one answer as unknown, not %r", groups)
    _check("label_type" in row, f"{METADATA} has no row for question %s, example %s", question_index, example_id)
    unknown, target_loc = groups.index("unknown"), row["target_loc"]
    _check(target_loc != unknown, "target_loc is the unknown answer")
    return Item(
        category,
        example_id,
        # Interned: all rows of a question share one string, which saves memory.
        sys.intern(question_index),
        condition,
        polarity,
        *texts[:2],
        texts[2:],
        label,
        unknown,
        target_loc,
        row["label_type"],
    )


def _check(right: bool, message: str, *values: object) -> None:
    # The message is formatted only on failure: this runs several times for each of 58,492 rows.
    if not right:
        raise ValueError(message % values)


def read_marks(path: Path) -> Marks:
    """Read the metadata file into a compact look-up."""
    marks: Marks = {}
    # The 58,492 rows share eight different marks, so that the look-up stays small.
    shared: dict[Mark, Mark] = {}
    for category, question_index, example_id, mark in _metadata_rows(path, marks):
        marks.setdefault((category, question_index), {})[example_id] = shared.setdefault(mark, mark)
    return marks


def _metadata_rows(path: Path, marks: Marks) -> Iterator[tuple[str, str, int, Mark]]:
    """Yield category, question_index, example_id and mark of every row that does not contradict the known marks.

    The quoted fields contain line breaks.
    """
    rows = csv.reader((line.decode() for _, line in lines(path)), strict=True)
    try:
        header = next(rows, list[str]())
        columns = [header.index(name) for name in _COLUMNS]
        for row in rows:
            category, question_index, example_id, target_loc, label_type = (row[column] for column in columns)
            mark = _mark(target_loc, label_type)
            known = marks.get((category, question_index), {})
            _check(known.get(int(example_id), mark) == mark, f"example {example_id} contradicts an earlier line")
            yield category, question_index, int(example_id), mark
    except (IndexError, ValueError, csv.Error) as error:
        raise DataError(f"not BBQ's metadata ({error}). {_AGAIN}", file=path, line=rows.line_num) from error


def _mark(target_loc: str, label_type: str) -> Mark:
    _check(label_type in ("label", "name"), "label_type is %r, not label or name", label_type)
    _check(target_loc in ("0", "1", "2", "NA", ""), "target_loc is %r, not 0, 1, 2 or NA", target_loc)
    return (int(target_loc) if target_loc.isdigit() else None, label_type)
