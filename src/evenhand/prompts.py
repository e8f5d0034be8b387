"""Prompts are text files beside the code that uses them, with `{{variables}}` filled strictly.

A prompt file holds one or more messages, each under a line `# system`, `# user` or `# assistant`. Its hash goes
into every turn, so that a change of one word shows in the record.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from evenhand.errors import UsageError
from evenhand.types import Message, Role

_HEADING = re.compile(r"^# (system|user|assistant)[ \t]*$", re.MULTILINE)
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")
_PACKAGE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Prompt:
    """A parsed prompt file: `render(name=value, …)` gives its messages."""

    id: str
    hash: str
    parts: tuple[tuple[Role, str], ...]
    variables: frozenset[str]

    def render(self, **values: str) -> tuple[Message, ...]:
        """The messages with every variable filled; a missing or an unknown one is an error, not a blank."""
        if values.keys() != self.variables:
            wrong = ", ".join(sorted(values.keys() ^ self.variables))
            raise UsageError(f"The prompt {self.id} takes {sorted(self.variables)}; check: {wrong}.")
        return tuple(
            Message(role, _VARIABLE.sub(lambda match: values[match.group(1)], text)) for role, text in self.parts
        )


@cache
def load_prompt(beside: str, name: str) -> Prompt:
    """The prompt `name`.md in the folder of the module file `beside` (pass `__file__`)."""
    path = Path(beside).parent / f"{name}.md"
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The prompt file {path} cannot be read: {error}.") from error
    return parse_prompt(_id_of(path), source)


def _id_of(path: Path) -> str:
    """`methods/cot/reason` for a prompt of this package; folder and name for any other."""
    inside = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.parent.name, path.name)
    return inside.with_suffix("").as_posix()


def parse_prompt(prompt_id: str, source: str) -> Prompt:
    """A prompt from its text; `prompt_id` names it in traces."""
    pieces = _HEADING.split(source)
    if len(pieces) < 3 or pieces[0].strip():
        raise UsageError(f"The prompt {prompt_id} must begin with a line '# system' or '# user'.")
    parts: tuple[tuple[Role, str], ...] = tuple(
        (cast(Role, role), text.strip()) for role, text in zip(pieces[1::2], pieces[2::2], strict=True)
    )
    for _, text in parts:
        if "{{" in _VARIABLE.sub("", text):
            raise UsageError(f"The prompt {prompt_id} has a variable that is not written {{{{name}}}}.")
    return Prompt(
        prompt_id,
        hashlib.sha256(source.encode()).hexdigest()[:16],
        parts,
        frozenset(name for _, text in parts for name in _VARIABLE.findall(text)),
    )
