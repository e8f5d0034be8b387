"""`evenhand evidence`: an evidence pack from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import declared
from evenhand.cli.request import SkipDamagedOption
from evenhand.core.errors import UsageError
from evenhand.core.format import plural
from evenhand.core.options import Request, argument, option

NOT_AS_STATED = 7
"""The exit code if a pack is not what it says."""


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
    """Make evidence packs for auditors, and check them.

    \b
    Examples:
      evenhand evidence pack runs/bbq runs/decisions --out evidence
      evenhand evidence pack runs/bbq --card >> README.md
      evenhand evidence verify evidence
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
    written, known_by, missing = write_pack(made, folder, pdf=request.pdf, browser=request.browser)
    for path in written:
        click.echo(str(path))
    if missing:
        click.echo(missing)
    click.echo(f"SHA-256 of the pack, to be passed on apart from it: {known_by}")
    click.echo(f"Anyone can check it: evenhand evidence verify {folder}")


class VerifyCommand(Request):
    """What `evenhand evidence verify` is asked for."""

    folder: Path = argument("The folder of a pack.", metavar="PACK")
    known_by: str | None = option(
        None, "The SHA-256 that was passed on apart from the pack.", flag="--sha256", metavar="HASH"
    )


@evidence.command("verify")
@declared(VerifyCommand)
def verify_pack(request: VerifyCommand) -> int:
    """Check PACK: the hashes of its files and grades, and every number, computed again from the grades.

    \b
    Examples:
      evenhand evidence verify evidence
      evenhand evidence verify evidence --sha256 3f0c…        (as its maker told you)

    Nothing but the pack is needed. No model is called, and no code of the pack is executed. What differs is named, and
    the exit code is then 7. At the end stands the command that repeats each run.
    """
    from evenhand.evidence import verify

    found = verify(request.folder)
    if request.known_by is not None and request.known_by != found.seal:
        found.faults.insert(0, f"The SHA-256 of the pack is {found.seal}, not the one that you were told")
    click.echo(f"SHA-256 of the pack: {found.seal}")
    click.echo(
        f"Checked: {plural(found.files, 'file')}, {plural(found.grades, 'outcome')} with their grades, "
        f"{plural(found.numbers, 'number')} computed again."
    )
    for each in found.notes:
        click.echo(f"! {each}.")
    for each in found.faults:
        click.echo(f"✗ {each}.")
    if found.faults:
        click.echo(f"The pack does not hold: {plural(len(found.faults), 'fault')}.")
        return NOT_AS_STATED
    click.echo("Every number in the pack follows from its grades, and no file was changed.")
    click.echo(f"To repeat it, in the folder {request.folder}:")
    for command in found.commands:
        click.echo(f"  {command}")
    for each in found.needs:
        click.echo(f"! {each}.")
    return 0
