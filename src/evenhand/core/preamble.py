"""What stands before every conversation of a deployed model: its system prompt and the turns that it is shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import json_lines, read_text, read_yaml
from evenhand.core.types import Message

_ENDINGS = (".md", ".txt", ".yaml", ".yml", ".jsonl", ".prompt")
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Preamble:
    """A system prompt and earlier turns; `name` is the file, or the beginning of the text."""

    name: str
    system: str = ""
    history: tuple[Message, ...] = ()

    def before(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return a conversation after the preamble; its own system prompt follows ours, since many take only one."""
        own = [each.content for each in messages if each.role == "system"]
        system = "\n\n".join(filter(None, (self.system, *own)))
        rest = (each for each in messages if each.role != "system")
        return (*((Message("system", system),) if system else ()), *self.history, *rest)


def read_preambles(systems: Sequence[str], history: str | Path | None = None) -> list[Preamble]:
    """Return a preamble for each system prompt, a file or a text; an empty one stands for the bare model."""
    turns = read_history(Path(history)) if history is not None else ()
    made = [replace(_preamble(text), history=turns) for text in systems or ([""] if turns else [])]
    if twice := {each.name for each in made if [one.name for one in made].count(each.name) > 1}:
        raise UsageError(f"--system names {min(twice)!r} twice; remove one.")
    return made


def _preamble(given: str) -> Preamble:
    path = Path(given).expanduser()
    is_path = "\n" not in given and len(given) < 1000
    if given.strip() and is_path and path.is_file():
        name = min(given, os.path.relpath(path), key=len)
        return Preamble(name, read_text(path).strip())
    if given.strip() and is_path and path.is_dir():
        raise UsageError(f"{given} is a folder; --system takes a file or the text of a system prompt.")
    if is_path and not any(map(str.isspace, given)) and given.endswith(_ENDINGS):
        raise UsageError(f"There is no file {given}; --system takes a file or the text of a system prompt.")
    words = " ".join(given.split()).rstrip(".")
    name = words if len(words) <= _LONGEST_NAME else f"{words[:_LONGEST_NAME].rstrip()}…"
    return Preamble(name or "the bare model", given.strip())


def read_history(path: Path) -> tuple[Message, ...]:
    """Read earlier turns from YAML or JSON Lines: `{role, content}` each, or `{user, assistant}` for two of them."""
    found: Any = [row for _, row in json_lines(path)] if path.suffix == ".jsonl" else read_yaml(path)
    turns: list[Message] = []
    for each in cast("list[Any]", found) if isinstance(found, list) else [found]:
        match each:
            case {"role": "user" | "assistant" as role, "content": str(content)}:
                turns.append(Message(role, content))
            case {"user": str(asked), "assistant": str(answered)}:
                turns += [Message("user", asked), Message("assistant", answered)]
            case _:
                raise DataError("each turn is {user: TEXT, assistant: TEXT} or {role: user, content: TEXT}.", file=path)
    roles = [each.role for each in turns]
    if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
        raise DataError("turns go by pairs: a user's, then the assistant's answer to it.", file=path)
    return tuple(turns)
