"""Loads questions with biased and unbiased answers, built in or from a user's file in the same format.

A file maps each type of bias to questions, each with a `biased` answer, a `clean` one, or both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

import orjson
import yaml

from evenhand.core.errors import DataError, UnknownNameError

BUILTIN = "framing_texts.yaml"
KINDS = ("biased", "clean")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Text:
    """A question and one answer to it."""

    id: str
    """`age-01-biased`: the type of bias, the question's number, the kind of answer."""
    bias: str
    biased: bool
    question: str
    answer: str


def load_texts(file: str | Path | None = None) -> tuple[Text, ...]:
    """Load the texts of a YAML file, or the built-in ones."""
    path: Traversable = resources.files("evenhand.data").joinpath(BUILTIN) if file is None else Path(file).expanduser()
    where = str(path)
    texts: list[Text] = []
    for bias, rows in _read(path, where).items():
        if not isinstance(bias, str) or not _NAME.fullmatch(bias):
            raise DataError(
                f"{bias!r} is not a valid name; use lower-case letters, digits and _, with a letter first.", file=where
            )
        if not isinstance(rows, list) or not rows:
            raise DataError(f"{bias} must be a list of questions with answers.", file=where)
        for number, row in enumerate(cast(list[Any], rows), 1):
            texts += _texts(bias, number, row, where)
    return tuple(texts)


def read_text(file: Path) -> Text:
    """Read the single text of a YAML file with a `question` and an `answer`; it has no label of bias."""
    row = _read(file, str(file))
    question, answer = (_text_field(row, name, "the file", str(file)) for name in ("question", "answer"))
    return Text(file.stem, "", False, question, answer)


def find_text(name: str) -> Text:
    """Return the text of a YAML file, or the built-in one of this id."""
    path = Path(name).expanduser()
    if path.suffix or path.is_file():
        return read_text(path)
    known = {each.id: each for each in load_texts()}
    if name not in known:
        raise UnknownNameError("text", name, known)
    return known[name]


def content_hash(texts: Sequence[Text]) -> str:
    """Return the SHA-256 of the content, independent of the YAML formatting."""
    return hashlib.sha256(orjson.dumps([asdict(each) for each in texts])).hexdigest()


def _read(path: Traversable, where: str) -> dict[Any, Any]:
    try:
        content: Any = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"cannot be read as YAML ({reason}).", file=where) from error
    if not isinstance(content, dict) or not content:
        raise DataError("the file must be a mapping of names to values; see docs/measure/framing.md.", file=where)
    return cast(dict[Any, Any], content)


def _texts(bias: str, number: int, row: Any, where: str) -> list[Text]:
    place = f"{bias}, question {number}"
    if not isinstance(row, dict):
        raise DataError(f"{place} must be a mapping with a question and answers.", file=where)
    fields = cast(dict[Any, Any], row)
    question = _text_field(fields, "question", place, where)
    texts = [
        Text(f"{bias}-{number:02}-{kind}", bias, kind == "biased", question, _text_field(fields, kind, place, where))
        for kind in KINDS
        if kind in fields
    ]
    if not texts:
        raise DataError(f"{place} has no answer; add `biased`, `clean` or both.", file=where)
    return texts


def _text_field(row: Mapping[Any, Any], name: str, place: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{place}: `{name}` must be a text and not empty.", file=where)
    return value.strip()
