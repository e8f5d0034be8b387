"""`evenhand evidence`: an evidence pack from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.request import SkipDamagedOption
from evenhand.core.files import check_new_folder, draft_folder
from evenhand.core.format import plural
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.untrusted import one_line

NOT_AS_STATED = 7
"""The exit code if a pack is not what it says."""


class PackCommand(SkipDamagedOption):
    runs: tuple[Path, ...] = argument("The runs that the pack documents.")
    out: Path | None = option(None, "A new folder (default evidence-NAMES).", short="-o")
    title: str | None = option(None, "The title of the page (default: the models).")
    card: bool = option(False, "Print only a section for a Hugging Face model card; no folder is written.")
    pdf: bool = option(True, "Print the page as PDF with Chromium, Chrome or Edge, if installed.")
    browser: str | None = option(
        None, "The browser that prints the PDF (default: one that is found).", metavar="PROGRAM"
    )
    commitments: Several = option(
        (), "What was committed to before a run; repeat it for several runs.", flag="--commitment", metavar="FILE"
    )
    sign: Path | None = option(None, "Sign the pack with this private key.", metavar="KEY")


@click.group(cls=Group, default="pack")
def evidence() -> None:
    """Make evidence packs for auditors, and check them.

    \b
    Examples:
      evenhand evidence pack runs/bbq runs/decisions --out evidence
      evenhand evidence pack runs/bbq --card >> README.md
      evenhand evidence verify evidence
      evenhand evidence commit plan.yaml           (before the run: say what will be run)
      evenhand evidence key auditor.key            (a key to sign packs with)
    """


@command(PackCommand, evidence)
def pack(request: PackCommand) -> None:
    """Make an evidence pack of stored RUNS for auditors: a page, a PDF, JSON, a model-card section; no model is called.

    \b
    Examples:
      evenhand evidence pack runs/bbq runs/decisions --out evidence
      evenhand evidence pack runs/bbq --card >> README.md
      evenhand evidence pack runs/bbq --commitment commitment.json --sign auditor.key

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
    check_new_folder(folder)
    with draft_folder(folder) as draft:
        written, known_by, missing = write_pack(
            made,
            draft,
            pdf=request.pdf,
            browser=request.browser,
            commitments=[Path(each) for each in request.commitments],
            key=request.sign,
        )
    for path in written:
        click.echo(str(folder / path.relative_to(draft)))
    if missing:
        click.echo(missing)
    click.echo(f"SHA-256 of the pack, to be passed on apart from it: {known_by}")
    click.echo(f"Anyone can check it: evenhand evidence verify {folder}")


class VerifyCommand(Request):
    folder: Path = argument("The folder of a pack.", metavar="PACK")
    known_by: str | None = option(
        None, "The SHA-256 that was passed on apart from the pack.", flag="--sha256", metavar="HASH"
    )
    commitment: Path | None = option(None, "The commitment as it was published before the run.", metavar="FILE")
    key: Path | None = option(None, "The public key of whoever should have signed.", metavar="FILE")


@command(VerifyCommand, evidence, "verify")
def verify_pack(request: VerifyCommand) -> int:
    """Check PACK: hashes of files and grades, every number computed again, commitment and signature.

    \b
    Examples:
      evenhand evidence verify evidence
      evenhand evidence verify evidence --sha256 3f0c…        (as its maker told you)
      evenhand evidence verify evidence --key auditor.pub --commitment commitment.json

    Nothing but the pack is needed. No model is called, and no code of the pack is executed. It says what is shown and
    what is not. What differs is named, and the exit code is then 7. At the end stands the command that repeats each
    run.
    """
    from evenhand.evidence import verify

    found = verify(request.folder, commitment=request.commitment, key=request.key)
    if request.known_by is not None and request.known_by != found.seal:
        found.faults.insert(0, f"The SHA-256 of the pack is {found.seal}, not the one that you were told")
    click.echo(f"SHA-256 of the pack: {found.seal}")
    click.echo(
        f"Checked: {plural(found.files, 'file')}, {plural(found.grades, 'outcome')} with their grades, "
        f"{plural(found.numbers, 'number')} computed again."
    )
    for each in found.notes:
        click.echo(f"! {one_line(each)}.")
    for each in found.faults:
        click.echo(f"✗ {one_line(each)}.")
    if found.faults:
        click.echo(f"The pack does not hold: {plural(len(found.faults), 'fault')}.")
        return NOT_AS_STATED
    for title, sentences in (("Shown:", found.shown), ("Not shown:", found.not_shown)):
        click.echo(title)
        for each in sentences:
            click.echo(f"  {one_line(each)}.")
    if found.commands:
        click.echo(f"To repeat it, in the folder {request.folder}:")
    for each in found.commands:
        click.echo(f"  {each}")
    for each in found.needs:
        click.echo(f"! {one_line(each)}.")
    return 0


class CommitCommand(Request):
    plan: Path = argument("A plan file.", metavar="PLAN")
    out: Path = option(Path("commitment.json"), "The commitment, to be published.", short="-o")
    hidden: bool = option(False, "Publish only a salted hash; FILE.opening.json opens it after the run.")


@command(CommitCommand, evidence, "commit")
def commit_to(request: CommitCommand) -> None:
    """Commit to PLAN before running it: hashes of plan, data, models and samples, seeds and version.

    \b
    Examples:
      evenhand evidence commit plan.yaml --out commitment.json        (publish it, then:)
      evenhand run --config plan.yaml --out runs/audit
      evenhand evidence pack runs/audit --commitment commitment.json --sign auditor.key

    Models are loaded, but not called. With --hidden the seed and everything else stay secret: publish commitment.json,
    and pack commitment.opening.json after the run.
    """
    from evenhand.cli.run import RunCommand
    from evenhand.core import aio
    from evenhand.evidence.signed import commit, write_commitment

    planned = RunCommand(config=request.plan).run_asked()
    content = aio.run(commit(planned.plan, planned.settings))
    digest, opening = write_commitment(content, request.out, hidden=request.hidden)
    click.echo(f"{request.out}: commitment {digest}")
    if opening is not None:
        click.echo(f"{opening}: what it commits to; keep it secret until the run is done, then pack it")
    click.echo(f"Publish {request.out}, then: evenhand run --config {request.plan}")


class KeyCommand(Request):
    target: Path = argument("The private key.", metavar="FILE")


@command(KeyCommand, evidence, "key")
def key_made(request: KeyCommand) -> None:
    """Make an Ed25519 key to sign packs with: FILE for you alone, and one beside it (.pub) to publish.

    \b
    Examples:
      evenhand evidence key auditor.key
    """
    from evenhand.evidence.signed import make_key

    public = make_key(request.target)
    click.echo(f"{request.target}: the private key, without a password; keep it")
    click.echo(f"{public}: the public key; publish it apart from packs")
