"""How the options of a method, benchmark or scorer are printed, for the commands that list these."""

from __future__ import annotations

from typing import Any

import click

from evenhand.core.options import DEFAULT_PRESET, PRESET, Option, Options


def in_short(options: type[Options]) -> str:
    """The options with their defaults, on one line."""
    return ", ".join(each.name if _is_open(each) else f"{each.name}={shown(each.default)}" for each in options.table())


def print_options(options: type[Options], how: str) -> None:
    """Every option with its type, bounds, default and help; `how` says how options are given."""
    table = options.table()
    if not table:
        click.echo("\nIt takes no options.")
        return
    click.echo(f"\nOptions ({how}):")
    for each in table:
        click.echo(f"  {each.name}: {each.kind}, {_default(each)}")
        if each.help:
            click.echo(f"      {each.help}")
    if options.presets:
        click.echo(f"  {PRESET}: {' or '.join((DEFAULT_PRESET, *options.presets))}, default {DEFAULT_PRESET}")
        click.echo("      A set of values; options that are given win over it.")
        for name in options.presets:
            other = {each.name: each.presets[name] for each in table if name in each.presets}
            values = ", ".join(f"{key}={shown(value)}" for key, value in other.items())
            click.echo(f"      {name}: {values or f'the same values as {DEFAULT_PRESET} today'}")


def _default(option: Option) -> str:
    if option.required:
        return "needed"
    return "optional" if _is_open(option) else f"default {shown(option.default)}"


def _is_open(option: Option) -> bool:
    return option.required or option.default in (None, "", ())


def shown(value: Any) -> str:
    """A value as it would be written on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
