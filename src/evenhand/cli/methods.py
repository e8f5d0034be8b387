"""`evenhand list methods`: what there is to choose from."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.cli.option_table import in_short, print_options
from evenhand.core.errors import UsageError
from evenhand.core.prompts import copy_prompts
from evenhand.methods.base import METHODS, Method, prompts_of


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the prompt files of NAME to DIR, to be changed and used with --templates DIR.",
)
def methods(name: str | None, prompts: Path | None) -> None:
    """List the methods, or show NAME with its options and prompts.

    \b
    Examples:
      evenhand list methods
      evenhand list methods stardtox
      evenhand list methods stardtox --prompts my_prompts
    """
    if prompts is not None:
        if name is None:
            raise UsageError("Name the method whose prompts to write, e.g. evenhand list methods cot --prompts DIR.")
        ids = prompts_of(METHODS.get(name))
        if not ids:
            raise UsageError(f"The method {name} has no prompts of this package.")
        for path in copy_prompts(ids, prompts):
            click.echo(path)
        click.echo(f"Keep the files that you change, remove the others, and pass --templates {prompts}")
        return
    if name is not None:
        method = METHODS.get(name)
        click.echo(f"{name}: {method.summary}\n\n{_about(method)}")
        print_options(method.options, f"--method {name}:KEY=VALUE,…")
        if ids := prompts_of(method):
            click.echo("\nPrompts (--templates DIR overrides them with DIR/ID.md):")
            for each in ids:
                click.echo(f"  {each}")
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
