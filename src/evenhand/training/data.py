"""Reads the files that `evenhand train pairs` writes. Every line is checked; an error names its file and line."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from evenhand.core.errors import DataError
from evenhand.core.files import json_lines
from evenhand.core.types import Message

T = TypeVar("T")
Prompt = tuple[Message, ...]
Kind = Literal["pairs", "sft"]
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Preference:
    """A prompt with a chosen (less biased) and a rejected answer."""

    prompt: Prompt
    chosen: str
    rejected: str
    bias: str = ""
    """The type of bias."""
    margin: float | None = None
    """By how much the referee's scores of the two answers differ."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt with an answer to imitate."""

    prompt: Prompt
    answer: str


@dataclass(frozen=True, slots=True)
class Files:
    """The training file and the held-out file of one kind; a single file has no held-out part."""

    train: Path
    test: Path | None

    def checksums(self) -> dict[str, str]:
        """Return the sha256 of each file by name, for the model card and to check the data on resume."""
        paths = [path for path in (self.train, self.test) if path is not None]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def find_files(data: Path, kind: Kind) -> Files:
    """Find the files of one kind in a folder of `evenhand train pairs`; `data` may also be a single file."""
    if data.is_file():
        return Files(data, None)
    train, test = (data / f"{kind}.{split}.jsonl" for split in ("train", "test"))
    if not train.is_file():
        raise DataError(f"There is no {train.name} here; make it with `evenhand train pairs RUN`.", file=data)
    return Files(train, test if test.is_file() else None)


def read_pairs(path: Path) -> list[Preference]:
    """Read all pairs of a file; an empty file is an error."""
    return _read(path, _preference, "pairs; a topic gives pairs only if it has statements of both high and low bias")


def read_examples(path: Path) -> list[Example]:
    """Read all examples of a file; an empty file is an error."""
    return _read(path, _example, "answers to imitate")


def read_prompts(path: Path) -> list[Prompt]:
    """Read the distinct prompts of a file of pairs or examples, in order."""
    rows = _read(path, lambda fields: (_example if "messages" in fields else _preference)(fields).prompt, "prompts")
    return list(dict.fromkeys(rows))


def _read(path: Path, parse: Callable[[Mapping[str, object]], T], what: str) -> list[T]:
    rows: list[T] = []
    for number, fields in json_lines(path):
        try:
            rows.append(parse(fields))
        except ValueError as error:
            raise DataError(str(error), file=path, line=number) from None
    if not rows:
        raise DataError(f"The file holds no {what}.", file=path)
    return rows


def _preference(fields: Mapping[str, object]) -> Preference:
    if missing := [name for name in ("prompt", "chosen", "rejected") if not fields.get(name)]:
        raise ValueError(f"A pair needs the fields prompt, chosen and rejected; {' and '.join(missing)} is missing.")
    margin = fields.get("margin")
    if margin is not None and (not isinstance(margin, int | float) or not math.isfinite(margin)):
        raise ValueError("The margin of a pair must be a number.")
    sides = _answer(fields["chosen"]), _answer(fields["rejected"])
    pair = Preference(_messages(fields["prompt"]), *sides, bias=str(fields.get("bias", "")), margin=margin)
    if pair.chosen == pair.rejected:
        raise ValueError("Both answers of this pair are the same.")
    return pair


def _example(fields: Mapping[str, object]) -> Example:
    if "messages" not in fields:
        raise ValueError("An example needs the field messages.")
    *prompt, _ = messages = _messages(fields["messages"])
    if not prompt:
        raise ValueError("There is an answer, but no prompt before it.")
    return Example(tuple(prompt), _answer([{"role": messages[-1].role, "content": messages[-1].content}]))


def _messages(value: object) -> Prompt:
    if not isinstance(value, list) or not value:
        raise ValueError("Messages must be a list of objects with role and content.")
    return tuple(_message(each) for each in cast(Sequence[object], value))


def _message(value: object) -> Message:
    fields = cast(Mapping[str, Any], value if isinstance(value, dict) else {})
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES or not isinstance(content, str):
        raise ValueError("Messages must be a list of objects with role and content.")
    return Message(role, content)


def _answer(value: object) -> str:
    messages = _messages(value)
    if len(messages) != 1 or messages[0].role != "assistant" or not messages[0].content.strip():
        raise ValueError("An answer must be one assistant message that is not empty.")
    return messages[0].content
