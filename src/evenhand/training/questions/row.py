"""One training question with all that is needed to grade a reply, and its line in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import orjson
from pydantic import TypeAdapter, ValidationError

from evenhand.core.errors import DataError
from evenhand.core.files import in_words, json_lines
from evenhand.core.types import Role
from evenhand.training.questions.language import LANGUAGES

Form = Literal["letter", "number", "option", "sentence", "short", "json", "yes_no", "cot"]
FORMS: tuple[Form, ...] = get_args(Form)
KNOWN = "known"
"""State of a question without a passage."""


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A prompt, the answer to learn, and what a grader needs."""

    messages: tuple[Mapping[str, str], ...]
    answer: str
    form: str
    state: str
    language: str
    category: str
    options: tuple[str, ...]
    """In the order in which they are shown."""
    right: int
    """Index of the right option."""
    people: tuple[tuple[str, ...], ...]
    """Aliases of the person of each option; empty for an option that is no person."""
    situation: str
    unknown: int | None = None
    """Index of the option that says that it is not known."""
    marks: tuple[str, ...] = ()
    """Letters or numbers of the options, if the answer is one."""
    polarity: str = ""
    split: str = "train"
    group: int | None = None
    """Which of two groups the right person is from; None if it is not known who."""
    context: str = ""
    question: str = ""
    held_out_wording: bool = False
    """Whether the instruction is one that no training row has."""

    def line(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"


def read_rows(path: Path) -> list[QuestionRow]:
    """Read a file of rows; it must hold both questions that can be answered and questions that cannot."""
    rows: list[QuestionRow] = []
    for number, values in json_lines(path):
        try:
            rows.append(_row(values))
        except ValueError as error:
            raise DataError(str(error), file=path, line=number) from None
    check_classes(rows, str(path))
    return rows


def check_classes(rows: Sequence[QuestionRow], where: str) -> None:
    """Raise DataError unless some passages tell the answer and some do not: one class teaches nothing."""
    if not rows:
        raise DataError("The file holds no questions.", file=where)
    told = {row.state == "told" for row in rows if row.state != KNOWN}
    if not told:
        raise DataError("No question has a passage; training needs some that have one.", file=where)
    if len(told) == 1:
        which = "can" if True in told else "cannot"
        raise DataError(
            f"All questions {which} be answered from their passages; training needs both kinds.", file=where
        )


def _row(values: Mapping[str, object]) -> QuestionRow:
    needed = [field.name for field in fields(QuestionRow) if field.default is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"A question needs the fields {', '.join(needed)}; {' and '.join(missing)} is missing.")
    if values["form"] not in FORMS:
        raise ValueError(f"The form {values['form']!r} is none of {', '.join(FORMS)}.")
    if values["language"] not in LANGUAGES:
        raise ValueError(f"The language {values['language']!r} is none of {', '.join(LANGUAGES)}.")
    try:
        row = _reader().validate_python(values)
    except ValidationError as error:
        raise ValueError(f"{in_words(error.errors()[0])}.") from None
    for place in (row.right, row.unknown):
        if place is not None and not 0 <= place < len(row.options):
            raise ValueError(f"There is no option {place}.")
    if not row.messages or any(not {"role", "content"} <= each.keys() for each in row.messages):
        raise ValueError("messages should be a list of one or more objects with role and content.")
    if unknown := [each["role"] for each in row.messages if each["role"] not in get_args(Role)]:
        raise ValueError(f"The role {unknown[0]!r} is none of {', '.join(get_args(Role))}.")
    return row


@cache
def _reader() -> TypeAdapter[QuestionRow]:
    return TypeAdapter(QuestionRow)
