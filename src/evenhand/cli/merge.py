"""`evenhand run merge`: the shards of a plan as one run."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.ending import STOPPED
from evenhand.cli.groups import Command
from evenhand.runs.merge import merge as merge_shards


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="The new folder of the merged run.")
def merge(runs: tuple[Path, ...], out: Path) -> int:
    """Merge RUNS, all shards of one plan, into one run with the numbers of a run that was never split.

    \b
    Examples:
      evenhand run --config plan.yaml --shard 1/2 --out shards/1      on one machine
      evenhand run --config plan.yaml --shard 2/2 --out shards/2      on another one
      evenhand run merge shards/1 shards/2 --out runs/whole
      evenhand report runs/whole

    Shards of different plans, data, models or code are refused. The shards are only read. If some samples were not
    run, the merged run can be resumed.
    """
    merged = merge_shards(runs, out)
    click.echo(f"{out}: {merged.shards:,} shards, {merged.samples:,} samples, {merged.outcomes:,} outcomes.")
    if merged.pending:
        click.echo(f"{merged.pending:,} outcomes are missing. Go on with: evenhand resume {out}")
        return STOPPED
    click.echo(f"Next: evenhand report {out}")
    return 0
