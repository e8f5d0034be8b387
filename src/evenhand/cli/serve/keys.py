"""`evenhand serve keys`: a key for a client of the guard's server."""

from __future__ import annotations

from datetime import datetime
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
@click.option("--route", "routes", multiple=True, help="A route it may use; repeat for several (default: all).")
@click.option("--expires", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="The day from which it is rejected.")
def keys(
    name: str,
    may: tuple[Permission, ...],
    per_minute: float | None,
    routes: tuple[str, ...],
    expires: datetime | None,
) -> None:
    """Make an API key for the client NAME: the key, shown this once, and its hash for the config file.

    \b
    Examples:
      evenhand serve keys web-app
      evenhand serve keys prometheus --may metrics
      evenhand serve keys moderation --may score --per-minute 600
      evenhand serve keys visitor --route assistant --expires 2027-01-31
    """
    for each, what in ((name, "key"), *((route, "route") for route in routes)):
        try:
            TypeAdapter(Name).validate_python(each)
        except ValidationError as error:
            raise UsageError(f"{each!r} is not a name for a {what}: {error.errors()[0]['msg']}.") from error
    key, digest = new_key()
    fields = [f'hash: "{digest}"']
    if may:
        fields.append(f"may: [{', '.join(dict.fromkeys(may))}]")
    if per_minute is not None:
        fields.append(f"per_minute: {per_minute:g}")
    if routes:
        quoted = ", ".join(f'"{route}"' for route in dict.fromkeys(routes))
        fields.append(f"routes: [{quoted}]")
    if expires is not None:
        fields.append(f"expires: {expires:%Y-%m-%d}")
    click.echo(f"The key, for the client; it is not shown again:\n\n{key}\n")
    click.echo(f'Its line in the config:\n\nkeys:\n  "{name}": {{{", ".join(fields)}}}')
