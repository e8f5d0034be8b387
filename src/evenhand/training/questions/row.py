"""One training question with all that is needed to grade a reply, and its line in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

import orjson

from evenhand.errors import DataError
from evenhand.training.data import json_lines

Form = Literal["letter", "number", "option", "sentence", "short", "json", "yes_no", "cot"]
FORMS: tuple[Form, ...] = get_args(Form)
KNOWN = "known"
"""State of a question without a passage."""


@dataclass(frozen=True, slots=True)
class Row:
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


def read_rows(path: Path) -> list[Row]:
    """Read a file of rows; it must hold both questions that can be answered and questions that cannot."""
    rows: list[Row] = []
    for number, values in json_lines(path):
        try:
            rows.append(_row(values))
        except (TypeError, ValueError) as error:
            raise DataError(str(error), file=path, line=number) from None
    check_classes(rows, str(path))
    return rows


def check_classes(rows: Sequence[Row], where: str) -> None:
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


def _row(values: Mapping[str, Any]) -> Row:
    known = {field.name for field in fields(Row)}
    needed = [field.name for field in fields(Row) if field.default is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"A question needs the fields {', '.join(needed)}; {' and '.join(missing)} is missing.")
    if values["form"] not in FORMS:
        raise ValueError(f"The form {values['form']!r} is none of {', '.join(FORMS)}.")
    chosen = {name: _frozen(value) for name, value in values.items() if name in known}
    row = Row(**chosen)
    if not 0 <= row.right < len(row.options):
        raise ValueError(f"There is no option {row.right}.")
    return row


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in cast(list[Any], value)) if isinstance(value, list) else value
