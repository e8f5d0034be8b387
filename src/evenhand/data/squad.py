"""Loads SQuAD v2 questions with their passages: from an official file, a saved data set or the built-in set.

The official file is one JSON object: articles, each with paragraphs, each with questions. A question without answers
cannot be answered from its paragraph; its `plausible_answers` are wrong and ignored. Texts are not changed.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, cast

import orjson
import yaml

from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, read_bytes
from evenhand.data.locate import file_hash, find_only_file
from evenhand.data.texts import is_saved, saved_rows

BUILTIN = "squad_builtin.yaml"
_AGAIN = "Download the official file again: evenhand data pull squad."


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a paragraph."""

    id: str
    title: str
    """The title of the article."""
    passage: str
    text: str
    answers: tuple[str, ...]
    """The distinct correct answers; empty if the passage has none."""


class Source(ABC):
    """A source of questions."""

    @abstractmethod
    def questions(self) -> Iterator[Question]:
        """Yield all questions in order."""

    @abstractmethod
    def hashes(self) -> Mapping[str, str]:
        """Return hashes that identify the content."""

    def facts(self) -> Mapping[str, Any]:
        """Return hashes that identify the content, and the number of questions of each kind."""
        counts = Counter("answerable" if question.answers else "unanswerable" for question in self.questions())
        return {"sha256": dict(self.hashes()), "questions": dict(sorted(counts.items()))}


class OfficialFile(Source):
    """A file in the official format, plain or as .gz; all passages are kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def questions(self) -> Iterator[Question]:
        seen: set[str] = set()
        for question in read_articles(self._content, self.path):
            if question.id in seen:
                raise DataError(f"the question id {question.id!r} occurs twice. {_AGAIN}", file=self.path)
            seen.add(question.id)
            yield question
        if not seen:
            raise DataError(f"there are no questions in the file. {_AGAIN}", file=self.path)

    def hashes(self) -> Mapping[str, str]:
        return file_hash(self.path)

    @cached_property
    def _content(self) -> Mapping[str, Any]:
        try:
            content: Any = orjson.loads(read_bytes(self.path))
        except orjson.JSONDecodeError as error:
            raise DataError(f"not valid JSON ({error}). {_AGAIN}", file=self.path, line=error.lineno) from error
        if not isinstance(content, dict):
            raise DataError(f"not a JSON object, so this is not a SQuAD file. {_AGAIN}", file=self.path)
        return cast(dict[str, Any], content)


class SavedSet(Source):
    """A split of SQuAD that the package `datasets` saved, with its columns id, title, context, question and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def questions(self) -> Iterator[Question]:
        for number, row in saved_rows(self.folder):
            given: Any = row.get("answers")
            answers: Any = cast(dict[str, Any], given).get("text") if isinstance(given, dict) else None
            if not isinstance(answers, list):
                raise DataError(
                    "the column answers.text is missing, so this is not a saved SQuAD.", file=self.folder, line=number
                )
            texts = [{"text": text} for text in cast(list[Any], answers)]
            found = {"id": row.get("id"), "question": row.get("question"), "answers": texts}
            place = f"row {number}"
            title, passage = (_text(row, name, place, self.folder) for name in ("title", "context"))
            yield _question(found, title, passage, place, self.folder)

    def hashes(self) -> Mapping[str, str]:
        return {path.name: content_sha256(path) for path in sorted(self.folder.glob("*.arrow"))}


class BuiltinPassages(Source):
    """The built-in set."""

    def questions(self) -> Iterator[Question]:
        for number, each in enumerate(_builtin(), 1):
            answerable = [(row["question"], tuple(row["answers"])) for row in each["answerable"]]
            unanswerable = [(text, ()) for text in each["unanswerable"]]
            for place, (text, answers) in enumerate([*answerable, *unanswerable], 1):
                yield Question(f"{number:02d}-{place}", each["title"], each["passage"].strip(), text, answers)

    def hashes(self) -> Mapping[str, str]:
        content = orjson.dumps(list(self.questions()))
        return {"built-in questions": hashlib.sha256(content).hexdigest()}


def find_questions(data: str | Path | None = None) -> Source:
    """Find the official development set: the file `data`, or in the folder `data` or the default folders.

    A folder that `datasets` saved is read as it is.
    """
    if data is not None and is_saved(Path(data).expanduser()):
        return SavedSet(Path(data).expanduser())
    return OfficialFile(find_only_file("squad", data))


def read_articles(content: Mapping[str, Any], file: Path | str) -> Iterator[Question]:
    """Yield the questions in a file's content; errors name the JSON path."""
    for number, article in _objects(content, "data", "", file):
        place = f"data[{number}]"
        title = _text(article, "title", place, file)
        for number_in_article, paragraph in _objects(article, "paragraphs", place, file):
            where = f"{place}.paragraphs[{number_in_article}]"
            passage = _text(paragraph, "context", where, file)
            for number_in_paragraph, row in _objects(paragraph, "qas", where, file):
                yield _question(row, title, passage, f"{where}.qas[{number_in_paragraph}]", file)


def _question(row: Mapping[str, Any], title: str, passage: str, place: str, file: Path | str) -> Question:
    answers = [_text(each, "text", f"{place}.answers[{n}]", file) for n, each in _objects(row, "answers", place, file)]
    # SQuAD 1.1 files lack the field: all their questions have answers.
    impossible = row.get("is_impossible", not answers)
    if impossible is not (not answers):
        raise DataError(
            f"{place}: is_impossible is {impossible!r}, but there are {len(answers)} answers. {_AGAIN}", file=file
        )
    question_id, text = _text(row, "id", place, file), _text(row, "question", place, file)
    return Question(question_id, title, passage, text, tuple(dict.fromkeys(answers)))


def _objects(
    holder: Mapping[str, Any], name: str, place: str, file: Path | str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list field, numbered from 0 as in JSON paths."""
    path = f"{place}.{name}" if place else name
    rows: Any = holder.get(name)
    if not isinstance(rows, list):
        raise DataError(f"{path} is not a list, so this is not a SQuAD file. {_AGAIN}", file=file)
    for number, row in enumerate(cast(list[Any], rows)):
        if not isinstance(row, dict):
            raise DataError(f"{path}[{number}] is not an object. {_AGAIN}", file=file)
        yield number, cast(dict[str, Any], row)


def _text(holder: Mapping[str, Any], name: str, place: str, file: Path | str) -> str:
    value: Any = holder.get(name)
    if not isinstance(value, str):
        raise DataError(f"{place}.{name} is {value!r:.60}, not a text. {_AGAIN}", file=file)
    return value


@cache
def _builtin() -> list[dict[str, Any]]:
    return yaml.safe_load(resources.files("evenhand.data").joinpath(BUILTIN).read_text("utf-8"))
