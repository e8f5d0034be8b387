"""`evenhand run push` and `pull`: copies of runs on object storage."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.core.format import plural
from evenhand.runs import remote


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("url")
@click.option("--overwrite", is_flag=True, help="Replace the run that is there.")
def push(run: Path, url: str, overwrite: bool) -> None:
    """Copy RUN, or a folder with runs, to URL: object storage, or whatever else fsspec knows.

    \b
    Examples:
      evenhand run push runs/first s3://bucket/runs/first
      evenhand run push shards/2 gs://bucket/shards/2 --overwrite

    A run may go on meanwhile: what is finished is copied. s3:// needs pip install s3fs, gs:// gcsfs, az:// adlfs; they
    take their keys from where they always do.
    """
    count = remote.push(run, url, overwrite=overwrite)
    click.echo(f"{url}: {plural(count, 'file')}")


@click.command(cls=Command)
@click.argument("url")
@click.argument("run", type=click.Path(path_type=Path))
def pull(url: str, run: Path) -> None:
    """Copy a run, or a folder with runs, from URL into the new folder RUN.

    \b
    Examples:
      evenhand run pull s3://bucket/runs/first runs/first
      evenhand run pull gs://bucket/shards shards
      evenhand run merge shards/1 shards/2 --out runs/whole
    """
    count = remote.pull(url, run)
    click.echo(f"{run}: {plural(count, 'file')}")
