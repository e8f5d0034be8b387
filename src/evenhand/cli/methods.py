"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

import click

from evenhand.cli.groups import Command
from evenhand.cli.option_table import in_short, print_options
from evenhand.methods.base import METHODS, Method


@click.command(cls=Command)
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List the methods, or show NAME with its options.

    \b
    Examples:
      evenhand methods
      evenhand methods stardtox
    """
    if name is not None:
        method = METHODS.get(name)
        click.echo(f"{name}: {method.summary}\n\n{_about(method)}")
        print_options(method.options, f"--method {name}:KEY=VALUE,…")
        return
    width = max(map(len, METHODS.names()))
    for each in METHODS.names():
        method = METHODS.get(each)
        click.echo(f"{each:<{width}} {method.summary}")
        click.echo(f"{'':<{width}} {_about(method)}")
        if options := in_short(method.options):
            click.echo(f"{'':<{width}} options: {options}  (--method {each}:KEY=VALUE)")


def _about(method: Method) -> str:
    needs = f"; needs {', '.join(sorted(method.needs))} (hf/ models)" if method.needs else ""
    return f"serves {', '.join(sorted(method.kinds))}; models: {', '.join(method.roles)}{needs}"
