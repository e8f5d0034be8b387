"""`evenhand serve audit`: reads and checks the audit file of the guard's server."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.groups import Group
from evenhand.core.errors import UsageError

if TYPE_CHECKING:
    from evenhand.server.telemetry.audit import ChainState

DAMAGED = 1
"""Exit code of `verify` for a file that was changed or is damaged."""


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
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--key-env",
    "variables",
    multiple=True,
    metavar="VARIABLE",
    help="An environment variable with a key of the audit file (audit.key_env); repeat for several.",
)
@click.option("--contains", metavar="HASH", default="", help="A hash from the server's log that must be in the file.")
def verify(files: tuple[Path, ...], variables: tuple[str, ...], contains: str) -> int:
    """Check the hash chain of audit FILEs with their rotated files; exit code 1 if one was changed or is damaged.

    Without a key, somebody who may write to the file can compute a new chain; a file with audit.key_env needs
    --key-env here. The server logs the last hash when it rotates or closes the file: --contains finds a file whose end
    was cut off.

    \b
    Examples:
      evenhand serve audit verify audit.sqlite
      evenhand serve audit verify audit.worker*.sqlite --key-env AUDIT_KEY
    """
    from evenhand.server.telemetry.audit import key_from, newest_file, verify_audit

    try:
        expected = bytes.fromhex(contains)
    except ValueError as error:
        raise UsageError(f"--contains {contains} is no hash: it is not made of hex digits.") from error
    keys = [key_from(variable) for variable in variables]
    states = {file: verify_audit(file, keys, expected) for file in dict.fromkeys(map(newest_file, files))}
    for file, state in states.items():
        _tell(file, state)
    return DAMAGED if any(state.problems for state in states.values()) else 0


def _tell(file: Path, state: ChainState) -> None:
    if state.problems:
        more = f"; and {state.more_problems:,} more problems" if state.more_problems else ""
        click.echo(f"evenhand: {file} is damaged: {'; '.join(state.problems)}{more}.", err=True)
        return
    counts = ", ".join(f"{count:,} {action or 'without an action'}" for action, count in state.actions.most_common())
    where = f" in {state.files} files" if state.files > 1 else ""
    click.echo(f"{file} is intact: {state.actions.total():,} requests{where}{f' ({counts})' if counts else ''}.")
    if state.last.number:
        signed = "signed" if state.signed else "not signed (no audit.key_env)"
        click.echo(f"  The chain is {signed} and ends with row {state.last.number:,}, hash {state.last.hash.hex()}.")
    for name in state.unchained:
        click.echo(f"  {name} has no hash chain, because an older Evenhand wrote it: changes cannot be noticed.")
    if state.unproved:
        click.echo(f"  It continues {state.unproved}, which is not here; nor is the file that would account for it.")
    if state.deleted:
        click.echo(f"  Rows up to {state.deleted:,} were deleted by age, as recorded.")
    if state.crashes:
        click.echo(f"  The server crashed {state.crashes:,} times; rows that waited for the disk were lost.")
    if state.lost:
        click.echo(f"  {state.lost:,} rows were lost because the disk was too slow or failed, as recorded.")
