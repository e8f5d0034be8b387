"""`evenhand ui`: web pages over all runs of a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from evenhand.cli.options import command
from evenhand.cli.request import RUNS, check_runs
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.options import Request, argument, option


class UiCommand(Request):
    folder: Path = argument("The folder with the runs.", default=Path(RUNS))
    file: Path | None = option(
        None,
        "A YAML file with keys, as evenhand serve keys prints them; needed for addresses other than loopback.",
        flag="--keys",
    )
    host: str = option("127.0.0.1", "Addresses other than loopback need --keys.")
    port: int = option(8791, "0 picks a free port.", ge=0, le=65535)


@command(UiCommand)
def ui(request: UiCommand) -> None:
    """Browse, compare and start the runs in FOLDER (default: runs) on web pages.

    \b
    Examples:
      evenhand ui
      evenhand ui experiments --port 9000
      evenhand ui --host 0.0.0.0 --keys keys.yaml

    The pages list all runs in FOLDER and below it, show their reports and samples, compare arms that you choose, rank
    models by benchmark, and start runs of models that are configured here, within a budget. Without keys, only this
    machine can open them. Every key may view; starting and cancelling runs needs the permission admin.
    """
    from evenhand.ui.offers import prepare
    from evenhand.ui.workbench import Workbench
    from evenhand.web.keys import read_keys
    from evenhand.web.site import serve

    check_runs(request.folder)
    request.folder.mkdir(exist_ok=True)  # nothing was run here yet: runs can be started from the pages
    read_config()  # a mistake in evenhand.toml is said now, not on a page
    keys = read_keys(request.file) if request.file is not None else {}

    async def run() -> None:
        workbench = Workbench(request.folder, request.host, keys)
        asyncio.get_running_loop().run_in_executor(None, prepare)
        try:
            await serve(
                workbench.site, request.port, lambda address: click.echo(f"The runs in {request.folder}: {address}/")
            )
        finally:
            await workbench.close()

    aio.run(run())
