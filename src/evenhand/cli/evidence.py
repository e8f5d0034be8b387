"""`evenhand evidence`: an evidence pack from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import declared
from evenhand.cli.request import SkipDamagedOption
from evenhand.core.errors import UsageError
from evenhand.core.options import argument, option


class PackCommand(SkipDamagedOption):
    """What `evenhand evidence pack` is asked for."""

    runs: tuple[Path, ...] = argument("Runs.")
    out: Path | None = option(None, "The folder (default evidence-NAMES).", short="-o")
    title: str | None = option(None, "The title of the page (default: the models).")
    card: bool = option(False, "Print only a section for a Hugging Face model card; no folder is written.")
    pdf: bool = option(True, "Print the page as PDF with Chromium, Chrome or Edge, if installed.")
    browser: str | None = option(
        None, "The browser that prints the PDF (default: one that is found).", metavar="PROGRAM"
    )


@click.group(cls=Group, default="pack")
def evidence() -> None:
    """Make evidence packs for auditors.

    \b
    Examples:
      evenhand evidence pack runs/bbq runs/decisions --out evidence
      evenhand evidence pack runs/bbq --card >> README.md
    """


@evidence.command()
@declared(PackCommand)
def pack(request: PackCommand) -> None:
    """Make an evidence pack of stored RUNS for auditors: a page, a PDF, JSON, a model-card section; no model is called.

    \b
    Examples:
      evenhand evidence pack runs/bbq runs/decisions --out evidence
      evenhand evidence pack runs/bbq --card >> README.md

    It holds scope, data sheets, hashes of models and prompts, methods, results with intervals, selection rates and
    impact ratios where a run decides about people, limits, how to repeat it, and which items of laws and standards it
    bears on. It states no conformity.
    """
    from evenhand.evidence import card_section, read_pack, write_pack

    made = read_pack(request.runs, title=request.title, skip_damaged=request.skip_damaged)
    if request.card:
        click.echo(card_section(made), nl=False)
        return
    folder = request.out or Path(f"evidence-{'-'.join(run.name for run in made.runs)}")
    if folder.is_file():
        raise UsageError(f"--out names a folder, and {folder} is a file; choose another.")
    written, missing = write_pack(made, folder, pdf=request.pdf, browser=request.browser)
    for path in written:
        click.echo(str(path))
    if missing:
        click.echo(missing)
