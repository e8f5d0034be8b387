"""`evenhand serve audit`: reads and checks the audit file of the guard's server."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from evenhand.cli.groups import Group
from evenhand.errors import UsageError

DAMAGED = 1
"""Exit code of `verify` for a damaged file."""


@click.group(cls=Group)
def audit() -> None:
    """Read and check the audit file, in which the server records its requests.

    \b
    Examples:
      evenhand serve audit export audit.sqlite --action revised --action blocked
      evenhand serve audit verify audit.sqlite
    """


@audit.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--since", type=click.DateTime(), help="Only requests from this time on (UTC).")
@click.option(
    "--action",
    multiple=True,
    type=click.Choice(["passed", "revised", "tried", "flagged", "blocked", "unrevised", "unchecked", "input-blocked"]),
    help="Only requests with this result; repeat for several.",
)
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="The file to write (default: the terminal)."
)
def export(file: Path, since: datetime | None, action: tuple[str, ...], out: Path | None) -> None:
    """Write the requests in an audit FILE as JSON Lines, oldest first; the server may be running.

    \b
    Examples:
      evenhand serve audit export audit.sqlite --action revised --action blocked
      evenhand serve audit export audit.sqlite --since 2026-11-01 --out november.jsonl
    """
    import orjson

    from evenhand.server.telemetry.audit import read_audit
    from evenhand.studies.export import write_table

    start = since.replace(tzinfo=UTC).timestamp() if since else 0.0
    rows = partial(read_audit, file, since=start, actions=action)
    if out is None:
        for row in rows():
            click.echo(orjson.dumps(row))
    elif out.resolve() == file.resolve():
        raise UsageError(f"{out} is the audit file itself; write to another one.")
    else:
        click.echo(f"{out}: {write_table(rows, 'jsonl', out):,} requests")


@audit.command()
@click.argument("file", type=click.Path(path_type=Path))
def verify(file: Path) -> int:
    """Check that an audit FILE can be read to its end, and count its requests; exit code 1 if it is damaged.

    The file has no signature: this finds damage, not careful changes by somebody who may write to it.

    \b
    Example:
      evenhand serve audit verify audit.sqlite
    """
    from evenhand.server.telemetry.audit import verify_audit

    state = verify_audit(file)
    if state.damage:
        click.echo(f"evenhand: {file} is damaged: {state.damage}.", err=True)
        return DAMAGED
    counts = ", ".join(f"{count:,} {action or 'without an action'}" for action, count in state.actions.most_common())
    click.echo(f"{file} is intact: {state.actions.total():,} requests{f' ({counts})' if counts else ''}.")
    if state.missing:
        click.echo(f"{state.missing:,} row numbers between the first and the last are missing: rows were deleted.")
    return 0
