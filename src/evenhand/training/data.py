"""The files that `evenhand pairs` writes, read for training: every line checked, every fault told with its line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import orjson

from evenhand.errors import DataError
from evenhand.types import Message

T = TypeVar("T")
Prompt = tuple[Message, ...]
Kind = Literal["pairs", "sft"]
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt, the less biased one first."""

    prompt: Prompt
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True)
class Example:
    """An answer to learn."""

    prompt: Prompt
    answer: str


@dataclass(frozen=True, slots=True)
class Files:
    """Where the training and the held-out lines of a kind lie; a single file has nothing held out."""

    train: Path
    test: Path | None

    def sums(self) -> dict[str, str]:
        """The sha256 of each file by its name, for the model card and to resume with the same data."""
        found = [path for path in (self.train, self.test) if path is not None]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def files(data: Path, kind: Kind) -> Files:
    """The files of a kind in a folder by `evenhand pairs`, or one file of lines."""
    if data.is_file():
        return Files(data, None)
    train, test = (data / f"{kind}.{split}.jsonl" for split in ("train", "test"))
    if not train.is_file():
        raise DataError(f"There is no {train.name} here; make it with `evenhand pairs RUN`.", file=data)
    return Files(train, test if test.is_file() else None)


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a file; there is at least one."""
    return _read(path, _pair, "pairs; a topic gives some only where it has statements of high and of low bias")


def read_examples(path: Path) -> list[Example]:
    """All answers to learn from a file; there is at least one."""
    return _read(path, _example, "answers to learn")


def read_prompts(path: Path) -> list[Prompt]:
    """The different prompts of a file of pairs or of answers, in order."""
    rows = _read(path, lambda fields: (_example if "messages" in fields else _pair)(fields).prompt, "prompts")
    return list(dict.fromkeys(rows))


def _read(path: Path, row: Callable[[Mapping[str, Any]], T], what: str) -> list[T]:
    found: list[T] = []
    for number, fields in _lines(path):
        try:
            found.append(row(fields))
        except ValueError as error:
            raise DataError(str(error), file=path, line=number) from None
    if not found:
        raise DataError(f"The file holds no {what}.", file=path)
    return found


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if not path.is_file():
        raise DataError("There is no such file.", file=path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                fields: Any = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise DataError(f"This is not JSON ({error.msg}).", file=path, line=number) from None
            if not isinstance(fields, dict):
                raise DataError("This is JSON, but not an object with fields.", file=path, line=number)
            yield number, cast(dict[str, Any], fields)


def _pair(fields: Mapping[str, Any]) -> Pair:
    if missing := [name for name in ("prompt", "chosen", "rejected") if not fields.get(name)]:
        raise ValueError(f"A pair needs the fields prompt, chosen and rejected; {' and '.join(missing)} is missing.")
    pair = Pair(_messages(fields["prompt"]), _answer(fields["chosen"]), _answer(fields["rejected"]))
    if pair.chosen == pair.rejected:
        raise ValueError("Both answers of this pair are the same, so there is nothing to prefer.")
    return pair


def _example(fields: Mapping[str, Any]) -> Example:
    if "messages" not in fields:
        raise ValueError("An answer to learn needs the field messages.")
    *prompt, _ = messages = _messages(fields["messages"])
    if not prompt:
        raise ValueError("There is an answer, but nothing that it answers.")
    return Example(tuple(prompt), _answer([{"role": messages[-1].role, "content": messages[-1].content}]))


def _messages(value: Any) -> Prompt:
    if not isinstance(value, list) or not value:
        raise ValueError("The messages are not a list of objects with role and content.")
    return tuple(_message(each) for each in cast(Sequence[Any], value))


def _message(value: Any) -> Message:
    fields = cast(Mapping[str, Any], value if isinstance(value, dict) else {})
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES or not isinstance(content, str):
        raise ValueError("The messages are not a list of objects with role and content.")
    return Message(role, content)


def _answer(value: Any) -> str:
    messages = _messages(value)
    if len(messages) != 1 or messages[0].role != "assistant" or not messages[0].content.strip():
        raise ValueError("An answer is one message of the assistant that is not empty.")
    return messages[0].content
