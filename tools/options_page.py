"""Writes docs/reference/options.md, the tables of all options, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from evenhand.cli.groups import SECTIONS
from evenhand.cli.main import main
from evenhand.cli.options import Declaration, declaration_of
from evenhand.core.fields import ConfigFields
from evenhand.core.options import Option, Request

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
_HEAD = """\
# Which options are there?

This page is written from the declarations of the options (`python tools/options_page.py`). `evenhand audit --help`
shows those that most people need, `--help-all` every one. A parameter in Python has the option's name, with `_` for
`-`, unless another name follows in brackets; then come the type (none: a switch) and the default. Where there is a °,
`NAME = VALUE` in evenhand.toml sets the default for all commands.
"""


def page() -> str:
    """The text of the page."""
    commands = dict(_commands(main))
    groups: dict[type[Request], None] = {}
    for each in commands.values():
        for name in each.request.offered():
            if _is_shared(owner := each.request.owner(name)):
                groups[owner] = None
    parts = [_HEAD, "## Options that several commands share\n"]
    for section in SECTIONS:
        owners = [owner for owner in groups if owner.heading() == section]
        rows = [row for owner in owners for row in _rows(owner, _own_fields(owner))]
        if rows:
            parts.append(f"### {section}\n\n{_lines(rows)}\n")
    places: dict[str, list[str]] = {}
    for words, each in commands.items():
        own = [name for name in each.request.offered() if not _is_shared(each.request.owner(name))]
        for row in _rows(each.request, own):
            places.setdefault(row, []).append(words)
    alike = {row: " · ".join(f"`{each}`" for each in where) for row, where in places.items() if len(where) > 1}
    parts.append("### Options with one meaning in several commands\n")
    for at in dict.fromkeys(alike.values()):
        parts.append(f"{at}:\n\n{_lines([row for row, where in alike.items() if where == at])}\n")
    parts.append("## Options of single commands\n")
    for words, each in commands.items():
        kind = each.request
        own = [name for name in kind.offered() if not _is_shared(kind.owner(name))]
        shared = {kind.owner(name).heading() for name in kind.offered() if _is_shared(kind.owner(name))}
        more = [section for section in SECTIONS if section in shared]
        rows = [row for row in _rows(kind, own) if row not in alike]
        if not rows and not more:
            continue
        parts.append(f"### evenhand {words}\n")
        if rows:
            parts.append(f"{_lines(rows)}\n")
        if more:
            parts.append(f"{'Also' if rows else 'It has'} options of: {', '.join(more)}.\n")
    return "\n".join(parts).rstrip() + "\n"


def _lines(rows: list[str]) -> str:
    return "\n".join(rows)


def _commands(command: click.Command, words: str = "") -> Iterator[tuple[str, Declaration[Request]]]:
    """Every command that has a declared request, by its words."""
    context = click.Context(command)
    if (found := declaration_of(command)) is not None:
        yield words, found
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _commands(child, f"{words} {name}".strip())


def _is_shared(owner: type[Request]) -> bool:
    return owner.heading() != "Options"


def _own_fields(owner: type[Request]) -> list[str]:
    return [name for name in owner.model_fields if owner.owner(name) is owner]


def _rows(kind: type[Request], names: list[str]) -> list[str]:
    table = {each.name: each for each in kind.table()}
    return [_row(kind, name, table[name]) for name in names]


def _row(kind: type[Request], name: str, each: Option) -> str:
    face = kind.face(name)
    shown = f"`{(face.metavar or name.upper()).replace('|', ' or ')}`" if face.is_argument else f"`{face.flag}`"
    shown += f", `{face.short}`" if face.short else ""
    in_file = "°" if name in ConfigFields.offered() and kind.owner(name) in ConfigFields.__mro__ else ""
    default = (
        "needed" if each.required else "" if each.default in (None, (), [], {}, "", False) else f"`{each.default}`"
    )
    kind_and_default = ", ".join(filter(None, (_KINDS.get(each.kind, each.kind), default)))
    named = "" if face.is_argument or face.flag == f"--{name.replace('_', '-')}" else f" (`{name}`)"
    about = f" ({kind_and_default})" if kind_and_default else ""
    return f"- {shown}{in_file}{named}{about}: {each.help}"


_KINDS = {
    "true or false": "",
    "a text": "text",
    "a path": "path",
    "a text, or a list of them": "texts",
    "a path, or a list of them": "paths",
    "a list of names": "names",
    "a whole number": "integer",
    "a whole number above 0": "integer > 0",
    "a number above 0": "> 0",
    "a number": "number",
}
"""Types in fewer words; a switch needs none."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
