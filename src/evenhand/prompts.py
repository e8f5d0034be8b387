"""Loads prompts: text files beside the code that uses them, with `{{variables}}`.

A prompt file holds one or more messages, each under a line `# system`, `# user` or `# assistant`. Every turn records
the hash of its prompt file, so that any change is visible.
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
    """A parsed prompt file; `render(name=value, …)` returns its messages."""

    id: str
    hash: str
    templates: tuple[tuple[Role, str], ...]
    """(role, text with variables) of every message."""
    variables: frozenset[str]

    def render(self, **values: str) -> tuple[Message, ...]:
        """Return the messages with all variables filled; a missing or unknown variable is an error."""
        if values.keys() != self.variables:
            wrong = ", ".join(sorted(values.keys() ^ self.variables))
            raise UsageError(f"The prompt {self.id} takes {sorted(self.variables)}; check: {wrong}.")
        return tuple(
            Message(role, _VARIABLE.sub(lambda match: values[match.group(1)], text)) for role, text in self.templates
        )


@cache
def load_prompt(beside: str, name: str) -> Prompt:
    """Load the prompt `name`.md from the folder of the module file `beside` (pass `__file__`)."""
    path = Path(beside).parent / f"{name}.md"
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The prompt file {path} cannot be read: {error}.") from error
    return parse_prompt(_id_of(path), source)


def _id_of(path: Path) -> str:
    """Return the path inside this package (`methods/cot/reason`), or folder and name for any other file."""
    inside = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.parent.name, path.name)
    return inside.with_suffix("").as_posix()


def parse_prompt(prompt_id: str, source: str) -> Prompt:
    """Parse a prompt from its text; `prompt_id` names it in traces."""
    pieces = _HEADING.split(source)
    if len(pieces) < 3 or pieces[0].strip():
        raise UsageError(f"The prompt {prompt_id} must begin with a line '# system' or '# user'.")
    templates: tuple[tuple[Role, str], ...] = tuple(
        (cast(Role, role), text.strip()) for role, text in zip(pieces[1::2], pieces[2::2], strict=True)
    )
    for _, text in templates:
        if "{{" in _VARIABLE.sub("", text):
            raise UsageError(f"The prompt {prompt_id} has a variable that is not written {{{{name}}}}.")
    return Prompt(
        prompt_id,
        hashlib.sha256(source.encode()).hexdigest()[:16],
        templates,
        frozenset(name for _, text in templates for name in _VARIABLE.findall(text)),
    )
