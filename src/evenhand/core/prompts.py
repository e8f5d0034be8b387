"""Loads prompts: text files beside the code that uses them, with `{{variables}}`.

A prompt file holds one or more messages, each under a line `# system`, `# user` or `# assistant`. A judge's may begin
with the form of the reply under `# reply` (`judging/rubric.py` reads it). Every turn records the hash of its prompt
file, so that any change is visible.

A folder of templates overrides prompts of this package: `FOLDER/methods/cot/reason.md` replaces `methods/cot/reason`.
A template that leaves a variable out names it under `# without`, so that none is forgotten.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from evenhand.core.errors import DataError, UnknownNameError, UsageError
from evenhand.core.events import held
from evenhand.core.files import read_text
from evenhand.core.types import Message, Role

_HEADING = re.compile(r"^# (system|user|assistant|reply|without)[ \t]*$", re.MULTILINE)
_REPLY, _WITHOUT = "reply", "without"
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")
_PACKAGE = Path(__file__).parents[1]

_WRITTEN_OUT = {"scales"}
"""Variables that a template may write out in its own words."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A parsed prompt file; `render(name=value, …)` returns its messages."""

    id: str
    hash: str
    templates: tuple[tuple[Role, str], ...]
    """(role, text with variables) of every message."""
    variables: frozenset[str]
    reply: str = ""
    """The form in which a judge is to reply, where the file says it."""
    without: frozenset[str] = frozenset()
    """Variables that a template leaves out on purpose."""

    def render(self, **values: str) -> tuple[Message, ...]:
        """Return the messages with all variables filled; a missing or unknown variable is an error."""
        if values.keys() != self.variables | self.without:
            wrong = ", ".join(sorted(values.keys() ^ (self.variables | self.without)))
            raise UsageError(f"The prompt {self.id} takes {sorted(self.variables)}; check: {wrong}.")
        return tuple(
            Message(role, _VARIABLE.sub(lambda match: values[match.group(1)], text)) for role, text in self.templates
        )


@dataclass(frozen=True, slots=True)
class Templates:
    """Prompt files of the user's own, by the id of the prompt that each overrides; `used()` puts them into effect."""

    folder: str
    hash: str
    texts: Mapping[str, str]

    def used(self) -> held[Templates]:
        """Prompts that are loaded here, and in tasks that are begun here, are these; those of other tasks are not."""
        return held(_templates, self)


BUILT_IN = Templates("", "", {})
"""No prompt is overridden."""
_templates: ContextVar[Templates] = ContextVar("templates", default=BUILT_IN)


def load_prompt(beside: str, name: str) -> Prompt:
    """The prompt `name`.md in the folder of the module file `beside` (pass `__file__`), or the template for it.

    Call it where the prompt is used, not when the module is imported: templates differ from run to run.
    """
    return _parsed(_file(beside, name)[1], prompt_text(beside, name))


def prompt_text(beside: str, name: str) -> str:
    """The text of that file, for prompts that are put together from several."""
    path, prompt_id = _file(beside, name)
    override = _templates.get().texts.get(prompt_id)
    return _read(path) if override is None else override


def bands_of(prompt: Prompt) -> str:
    """The text of `NAME_bands.md` next to the prompt's file, or of its template; empty if neither exists."""
    prompt_id = f"{prompt.id}_bands"
    path = _PACKAGE / f"{prompt_id}.md"
    override = _templates.get().texts.get(prompt_id)
    return (override if override is not None else _read(path) if path.is_file() else "").strip()


@cache
def _file(beside: str, name: str) -> tuple[Path, str]:
    path = Path(beside).with_name(f"{name}.md")
    return path, _id_of(path)


_read = cache(read_text)


def _id_of(path: Path) -> str:
    """Return the path inside this package (`methods/cot/reason`), or folder and name for any other file."""
    inside = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else Path(path.parent.name, path.name)
    return inside.with_suffix("").as_posix()


def built_in_prompts() -> dict[str, Path]:
    """The prompt files of this package, by id."""
    return {_id_of(path): path for path in sorted(_PACKAGE.rglob("*.md"))}


def copy_prompts(ids: Iterable[str], folder: Path) -> list[Path]:
    """Write built-in prompts into a folder of templates, as a start; nothing is overwritten."""
    files = {folder / f"{each}.md": built_in_prompts()[each] for each in ids}
    for target in files:
        if target.exists():
            raise UsageError(f"{target} exists already, and nothing is overwritten; name another folder.")
    for target, source in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_read(source), encoding="utf-8")
    return list(files)


def read_templates(folder: str | Path | None) -> Templates:
    """The templates of a folder; a file that overrides no prompt, or has other variables than it, is refused."""
    if folder is None:
        return BUILT_IN
    root = Path(folder)
    if not root.is_dir():
        raise DataError("there is no such folder of templates.", file=root)
    known = built_in_prompts()
    named: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.is_dir() or any(part.startswith(".") for part in inside.parts):
            continue
        prompt_id = inside.with_suffix("").as_posix()
        original = known.get(prompt_id)
        if path.suffix != ".md" or original is None:
            error = UnknownNameError("prompt", prompt_id if path.suffix == ".md" else inside.as_posix(), known)
            raise DataError(str(error), file=path)
        named[prompt_id] = _checked(path, prompt_id, _read(original))
    if not named:
        raise DataError("no templates are there; `evenhand list methods NAME --prompts DIR` writes some.", file=root)
    digest = hashlib.sha256("".join(f"{key}\0{text}\0" for key, text in named.items()).encode())
    return Templates(str(folder), digest.hexdigest()[:16], named)


def _checked(path: Path, prompt_id: str, original: str) -> str:
    """The text of a template that can stand in for the original."""
    text = read_text(path)
    wanted, found = set(_VARIABLE.findall(original)), set(_VARIABLE.findall(text))
    named = dict(zip((pieces := _HEADING.split(text))[1::2], pieces[2::2], strict=True)).get(_WITHOUT, "")
    if missing := sorted(wanted - found - set(re.findall(r"\w+", named)) - _WRITTEN_OUT):
        raise DataError(
            f"the template lacks the variable {{{{{missing[0]}}}}} of {prompt_id}; name it under a line "
            f"'# {_WITHOUT}' to leave it out.",
            file=path,
        )
    if unknown := sorted(found - wanted):
        takes = ", ".join(sorted(wanted)) or "none"
        raise DataError(f"{prompt_id} has no variable {{{{{unknown[0]}}}}}; it has: {takes}.", file=path)
    # Pieces of a prompt have no headings of their own.
    if _HEADING.match(original):
        try:
            parse_prompt(prompt_id, text)
        except UsageError as error:
            raise DataError(str(error), file=path) from error
    return text


@cache
def _parsed(prompt_id: str, source: str) -> Prompt:
    return parse_prompt(prompt_id, source)


def parse_prompt(prompt_id: str, source: str) -> Prompt:
    """Parse a prompt from its text; `prompt_id` names it in traces."""
    pieces = _HEADING.split(source)
    if len(pieces) < 3 or pieces[0].strip():
        raise UsageError(f"The prompt {prompt_id} must begin with a line '# system' or '# user'.")
    parts = [(role, text.strip()) for role, text in zip(pieces[1::2], pieces[2::2], strict=True)]
    settings = {role: text for role, text in parts if role in (_REPLY, _WITHOUT)}
    templates: tuple[tuple[Role, str], ...] = tuple(
        (cast(Role, role), text) for role, text in parts if role not in settings
    )
    for _, text in templates:
        if "{{" in _VARIABLE.sub("", text):
            raise UsageError(f"The prompt {prompt_id} has a variable that is not written {{{{name}}}}.")
    return Prompt(
        prompt_id,
        hashlib.sha256(source.encode()).hexdigest()[:16],
        templates,
        frozenset(name for _, text in templates for name in _VARIABLE.findall(text)),
        settings.get(_REPLY, ""),
        frozenset(re.findall(r"\w+", settings.get(_WITHOUT, ""))),
    )
