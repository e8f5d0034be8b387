"""`evenhand ui`: web pages over all runs of a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from evenhand.cli.groups import Command
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import UsageError

RUNS = "runs"


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path), default=RUNS)
@click.option(
    "--keys",
    "file",
    type=click.Path(path_type=Path),
    help="A YAML file with keys, as evenhand serve keys prints them; needed for addresses other than loopback.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Addresses other than loopback need --keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=8791, show_default=True, help="0 takes a free one.")
def ui(folder: Path, file: Path | None, host: str, port: int) -> None:
    """Browse, compare and start the runs in FOLDER (default: runs) on web pages.

    \b
    Examples:
      evenhand ui
      evenhand ui experiments --port 9000
      evenhand ui --host 0.0.0.0 --keys keys.yaml

    The pages list all runs in FOLDER and below it, show their reports and samples, compare arms that you choose, rank
    models by benchmark, and start runs of models that are configured here, within a budget. Without keys, only this
    machine can open them. A key may look; to start and cancel runs it needs the permission admin.
    """
    from evenhand.ui.offers import prepare
    from evenhand.ui.workbench import Workbench
    from evenhand.web.keys import read_keys
    from evenhand.web.site import serve

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name the folder of the runs.")
    if str(folder) == RUNS:
        folder.mkdir(exist_ok=True)  # nothing was run here yet: runs can be started from the pages
    elif not folder.exists():
        raise UsageError(f"There is no folder {folder}; name the folder of the runs, or make it first.")
    read_config()  # a mistake in evenhand.toml is said now, not on a page
    keys = read_keys(file) if file is not None else {}

    async def run() -> None:
        workbench = Workbench(folder, host, keys)
        asyncio.get_running_loop().run_in_executor(None, prepare)
        try:
            await serve(workbench.site, port, lambda address: click.echo(f"The runs in {folder}: {address}/"))
        finally:
            await workbench.close()

    aio.run(run())
