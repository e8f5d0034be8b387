"""`evenhand serve keys`: a key for a client of the guard's server."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import click
from pydantic import TypeAdapter, ValidationError

from evenhand.cli.groups import Command
from evenhand.core.errors import UsageError
from evenhand.web.keys import Name, Permission, new_key


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
@click.option("--at-once", type=click.IntRange(1), help="Most requests at once (default: no limit).")
@click.option(
    "--budget",
    multiple=True,
    metavar="AMOUNT",
    help="Most tokens or money, e.g. '2M tokens' or '$20'; repeat for both. Money needs prices in the config.",
)
@click.option(
    "--per", type=click.Choice(["day", "month", "total"]), help="When the budget renews, in UTC; total: never."
)
@click.option("--route", "routes", multiple=True, help="A route it may use; repeat for several (default: all).")
@click.option("--expires", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="The day from which it is rejected.")
def keys(
    name: str,
    may: tuple[Permission, ...],
    per_minute: float | None,
    at_once: int | None,
    budget: tuple[str, ...],
    per: str | None,
    routes: tuple[str, ...],
    expires: datetime | None,
) -> None:
    """Make an API key for the client NAME: the key, shown this once, and its hash for the config file.

    \b
    Examples:
      evenhand serve keys web-app
      evenhand serve keys prometheus --may metrics
      evenhand serve keys moderation --may score --per-minute 600
      evenhand serve keys partner --at-once 10 --budget '2M tokens' --budget '$20' --per month
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
    if at_once is not None:
        fields.append(f"at_once: {at_once}")
    if budget or per:
        fields.append(f"budget: {{{_budget(budget, per)}}}")
    if routes:
        quoted = ", ".join(f'"{route}"' for route in dict.fromkeys(routes))
        fields.append(f"routes: [{quoted}]")
    if expires is not None:
        fields.append(f"expires: {expires:%Y-%m-%d}")
    click.echo(f"The key, for the client; it is not shown again:\n\n{key}\n")
    click.echo(f'Its line in the config:\n\nkeys:\n  "{name}": {{{", ".join(fields)}}}')


def _budget(texts: tuple[str, ...], per: str | None) -> str:
    from evenhand.models.budget import Limits

    limits = Limits.parse(texts)
    if limits.calls is not None:
        raise UsageError("A key's budget is in tokens or money, not in calls; see --per-minute for requests.")
    if per is None or limits == Limits():
        raise UsageError("A budget needs both --budget AMOUNT and --per day, month or total.")
    amounts = {"tokens": limits.tokens, "money": limits.money}
    return ", ".join([*(f"{name}: {value}" for name, value in amounts.items() if value is not None), f"per: {per}"])
