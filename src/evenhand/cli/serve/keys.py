"""`evenhand serve keys`: a key for a client of the guard's server."""

from __future__ import annotations

from typing import get_args

import click
from pydantic import TypeAdapter, ValidationError

from evenhand.cli.groups import Command
from evenhand.errors import UsageError
from evenhand.server.access.auth import new_key
from evenhand.server.config import Name, Permission


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--may",
    multiple=True,
    type=click.Choice(get_args(Permission)),
    help="What the key may do besides chat: switch off the method (bypass), score texts (score), read metrics "
    "(metrics), use all of the server's own pages (admin). Repeat for several.",
)
@click.option(
    "--per-minute", type=click.FloatRange(0, min_open=True), help="Most requests per minute (default: no limit)."
)
def keys(name: str, may: tuple[Permission, ...], per_minute: float | None) -> None:
    """Make an API key for the client NAME: the key, shown this once, and its hash for the config file.

    \b
    Examples:
      evenhand serve keys web-app
      evenhand serve keys prometheus --may metrics
      evenhand serve keys moderation --may score --per-minute 600
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise UsageError(f"{name!r} is not a name for a key: {error.errors()[0]['msg']}.") from error
    key, digest = new_key()
    fields = [f'hash: "{digest}"']
    if may:
        fields.append(f"may: [{', '.join(dict.fromkeys(may))}]")
    if per_minute is not None:
        fields.append(f"per_minute: {per_minute:g}")
    click.echo(f"The key, for the client; it is not shown again:\n\n{key}\n")
    click.echo(f'Its line in the config:\n\nkeys:\n  "{name}": {{{", ".join(fields)}}}')
