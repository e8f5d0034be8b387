"""`evenhand run export`: a run's results as a table, or as logs of Inspect."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.given_options import skip_damaged_option
from evenhand.cli.groups import Command
from evenhand.cli.request import check_file
from evenhand.core.errors import MissingExtraError, UsageError
from evenhand.studies.export import FORMATS, TABLES
from evenhand.studies.export import export as write

INSPECT = "eval"
"""The format of Inspect's logs."""


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--table", type=click.Choice(TABLES), help="What to write (default outcomes).")
@click.option(
    "--format",
    "file_format",
    type=click.Choice((*FORMATS, INSPECT)),
    help="Default: by the ending of --out, else csv. datasets: a folder for that package; eval: logs of Inspect.",
)
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The file (default TABLE.FORMAT in the run).")
@click.option("--usage", is_flag=True, help="Add calls, tokens, money and time to outcomes.")
@skip_damaged_option
def export(
    run: Path, table: str | None, file_format: str | None, out: Path | None, usage: bool, skip_damaged: bool
) -> None:
    """Write RUN's outcomes, turns, metrics, effects or evidence as CSV, Parquet, JSON Lines or a data set.

    \b
    Examples:
      evenhand run export runs/first
      evenhand run export runs/first --table turns --out turns.parquet
      evenhand run export runs/first --format datasets --out outcomes    (then: datasets.load_from_disk("outcomes"))
      evenhand run export runs/first --format eval     (then: inspect view --log-dir runs/first/inspect)

    The columns and their types are documented on the page "Tables". Evidence is what its methods searched for and
    found; as JSON Lines it can be searched again, with replay:FILE.
    """
    ending = out.suffix.removeprefix(".") if out else ""
    chosen = file_format or (ending if ending in (*FORMATS, INSPECT) else "csv")
    if chosen == INSPECT:
        if table or usage:
            raise UsageError("A log of Inspect holds all that the run stored; remove --table and --usage.")
        _write_logs(run, out or run / "inspect", skip_damaged)
        return
    table = table or TABLES[0]
    if chosen != "datasets":
        check_file(out, "the table")
    target = out or run / (table if chosen == "datasets" else f"{table}.{chosen}")
    count = write(run, table, chosen, target, usage=usage, skip_damaged=skip_damaged)
    click.echo(f"{target}: {count:,} rows")


def _write_logs(run: Path, target: Path, skip_damaged: bool) -> None:
    try:
        from evenhand.integrations.inspect.logs import export_logs
    except ImportError as error:
        raise MissingExtraError("Writing logs of Inspect", "inspect") from error
    for file, count in export_logs(run, target, skip_damaged=skip_damaged):
        click.echo(f"{file}: {count:,} samples")
    folder = target.parent if target.suffix in (".eval", ".json") else target
    click.echo(f"To look at it: inspect view --log-dir {folder}")
