"""Loads prompts of the user's own, from any file of texts, or the small built-in set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError
from evenhand.data.identities.substitute import check_slots
from evenhand.data.texts import TextFile

FIELDS = ("prompt", "text", "question", "instruction")
"""The fields that may hold the prompt, if none is named; a file with a single field needs none of these."""
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class OwnPrompt:
    """A prompt with its place in the file, counted from 1."""

    number: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.number:05d}"


def load_prompts(data: str | Path | None = None, field: str | None = None) -> list[OwnPrompt]:
    """Read the prompts; blank ones are skipped, and a prompt that occurs again is kept once."""
    if data is None:
        text = resources.files("evenhand.data").joinpath("prompts_builtin.txt").read_text("utf-8")
        return checked(text.splitlines())
    path = Path(data).expanduser()
    chosen = None if path.suffix.lower() == ".txt" else field or _field(path)
    return checked([row.text for row in TextFile(path, chosen).rows()], str(path))


def checked(texts: Sequence[Any], where: str = "prompts") -> list[OwnPrompt]:
    """Return the prompts, numbered; raise DataError for a slot that does not exist."""
    found: dict[str, int] = {}
    for number, text in enumerate(texts, 1):
        if len(text) > _LONGEST:
            raise DataError(f"prompt {number} has {len(text):,} characters; the most are {_LONGEST:,}.", file=where)
        if text.strip():
            check_slots(text, f"{where}, prompt {number}")
            found.setdefault(text.strip(), number)
    if not found:
        raise DataError("there are no prompts in it.", file=where)
    return [OwnPrompt(number, text) for text, number in found.items()]


def _field(path: Path) -> str | None:
    """Return the field with the prompts, by its name, or because it is the only one."""
    names = list(TextFile(path).fields())
    if not names:
        raise DataError("the file has no rows; write a prompt in each, in a field called prompt.", file=path)
    found = next((name for name in FIELDS if name in names), names[0] if len(names) == 1 else None)
    if found is None:
        raise DataError(
            f"none of its fields is called {', '.join(FIELDS[:-1])} or {FIELDS[-1]}; name the field with --set "
            f"field=NAME (it has {', '.join(names)}).",
            file=path,
        )
    return found
