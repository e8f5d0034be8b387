"""`evenhand evidence`: an evidence pack from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.given_options import skip_damaged_option
from evenhand.cli.groups import Command
from evenhand.core.errors import UsageError


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The folder (default evidence-NAMES).")
@click.option("--title", help="The title of the page (default: the models).")
@click.option("--card", is_flag=True, help="Print only a section for a Hugging Face model card; no folder is written.")
@click.option("--pdf/--no-pdf", default=True, help="Print the page as PDF with Chromium, Chrome or Edge, if installed.")
@click.option("--browser", metavar="PROGRAM", help="The browser that prints the PDF (default: one that is found).")
@skip_damaged_option
def evidence(
    runs: tuple[Path, ...],
    out: Path | None,
    title: str | None,
    card: bool,
    pdf: bool,
    browser: str | None,
    skip_damaged: bool,
) -> None:
    """Make an evidence pack of stored RUNS for auditors: a page, a PDF, JSON, a model-card section; no model is called.

    \b
    Examples:
      evenhand evidence runs/bbq runs/decisions --out evidence
      evenhand evidence runs/bbq --card >> README.md

    It holds scope, data sheets, hashes of models and prompts, methods, results with intervals, selection rates and
    impact ratios where a run decides about people, limits, how to repeat it, and which items of laws and standards it
    bears on. It states no conformity.
    """
    from evenhand.evidence import card_section, read_pack, write_pack

    pack = read_pack(runs, title=title, skip_damaged=skip_damaged)
    if card:
        click.echo(card_section(pack), nl=False)
        return
    folder = out or Path(f"evidence-{'-'.join(run.name for run in pack.runs)}")
    if folder.is_file():
        raise UsageError(f"--out names a folder, and {folder} is a file; choose another.")
    written, missing = write_pack(pack, folder, pdf=pdf, browser=browser)
    for path in written:
        click.echo(str(path))
    if missing:
        click.echo(missing)
