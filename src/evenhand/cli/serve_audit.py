"""`evenhand serve-audit`: what the audit file of the guard's server holds, as JSON Lines."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from evenhand.errors import UsageError


@click.command("serve-audit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--since", type=click.DateTime(), help="Only requests from this time on (UTC).")
@click.option(
    "--action",
    multiple=True,
    type=click.Choice(["passed", "revised", "flagged", "blocked", "unrevised"]),
    help="Only requests that ended so. Repeat for several.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write (default: the terminal).")
def serve_audit(file: Path, since: datetime | None, action: tuple[str, ...], out: Path | None) -> None:
    """Write the requests in an audit FILE as JSON Lines, oldest first; the server may be running.

    \b
    Examples:
      evenhand serve-audit audit.sqlite --action revised --action blocked
      evenhand serve-audit audit.sqlite --since 2026-11-01 --out november.jsonl
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
