"""`evenhand export`: a run's results as a table."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.cli.options import check_file, skip_damaged_option
from evenhand.studies.export import FORMATS, TABLES
from evenhand.studies.export import export as write


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--table", type=click.Choice(TABLES), default="outcomes", show_default=True, help="What to write.")
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Default: by the ending of --out, else csv.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The file (default TABLE.FORMAT in the run).")
@click.option("--usage", is_flag=True, help="Add calls, tokens, money and time to outcomes.")
@skip_damaged_option
def export(run: Path, table: str, file_format: str | None, out: Path | None, usage: bool, skip_damaged: bool) -> None:
    """Write RUN's outcomes, turns, metrics, effects or evidence as CSV, Parquet or JSON Lines.

    \b
    Examples:
      evenhand export runs/first
      evenhand export runs/first --table turns --out turns.parquet

    Evidence is what its methods searched for and found; as JSON Lines it can be searched again, with replay:FILE.
    """
    check_file(out, "the table")
    ending = out.suffix.removeprefix(".") if out else ""
    chosen = file_format or (ending if ending in FORMATS else "csv")
    target = out or run / f"{table}.{chosen}"
    count = write(run, table, chosen, target, usage=usage, skip_damaged=skip_damaged)
    click.echo(f"{target}: {count:,} rows")
