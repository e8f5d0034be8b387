"""How a command that runs plans ends: what became of a run, how to go on, and the exit code."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Generator, Sequence
from pathlib import Path

import click

from evenhand.cli.output import current_output
from evenhand.core.errors import EvenhandError
from evenhand.core.progress import Progress
from evenhand.models.budget import Limits
from evenhand.models.endpoints import call_among
from evenhand.runs.parts import Settings
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import most_ungraded, read_summary
from evenhand.show.markup import clean

STOPPED = 3
"""Exit code of a run that the budget stopped: nothing is wrong, but it is not complete."""
FAILED = 4
"""Exit code of a run with an arm, or a scorer, for which nothing was measured, or too little by --max-failed."""
_LONGEST_REASON = 300


def print_end(folder: Path, progress: Progress, out: Path, budget: Limits) -> None:
    """Print what became of a run, why samples have no grade, and how to go on; `out` is what to resume."""
    current_output().folders.append(folder)
    states = ", ".join(f"{count:,} {status}" for status, count in progress.statuses.most_common())
    click.echo(f"{folder}: {progress.done:,} of {progress.total:,} done ({states or 'none'}).")
    summary = read_summary(folder)
    for status, reason, count in summary.reasons():
        click.echo(f"  {count:,} × {status}: {_line(reason)}")
    if summary.unread:
        click.echo(f"  The first reply that could not be read: {_line(summary.unread)}")
    if progress.stopped:
        limits = [part for text in budget.doubled().texts() for part in ("--budget", text)]
        click.echo(f"Stopped: {progress.stopped}. Go on with a larger budget: {resume_command(out, *limits)}")
    elif progress.statuses["failed"]:
        click.echo(f"Try the failed samples again: {resume_command(out, '--retry-failed')}")


def _line(text: str) -> str:
    return " ".join(clean(text).split())[:_LONGEST_REASON]


def resume_command(out: Path, *options: str) -> str:
    """The command that goes on with a run, or with all runs of a paper."""
    with contextlib.suppress(EvenhandError):  # a store that cannot be read names no model
        if any(call_among(read_summary(file.parent).models) for file in out.rglob(FILE_NAME)):
            options = (*options, "--allow-call")
    return shlex.join(["evenhand", "resume", str(out), *options])


@contextlib.contextmanager
def resumable(out: Path) -> Generator[None]:
    """Name the command that goes on, if the user interrupts a run that has stored something."""
    try:
        yield
    except KeyboardInterrupt as error:
        if next(out.rglob(FILE_NAME), None) is None:
            raise
        raise KeyboardInterrupt(f"Interrupted. Go on with: {resume_command(out)}") from error


def exit_code(folders: Sequence[Path], settings: Settings, *, stopped: bool) -> int:
    """0, or STOPPED, or FAILED if an arm measured nothing or has too many samples without a grade."""
    found = [read_summary(folder) for folder in folders]
    code = STOPPED if stopped else 0
    if any(each.unmeasured for each in found):
        code = FAILED
    for arm in (arm for each in found if not each.nothing_measured for arm in each.unmeasured):
        click.echo(f"{arm.label}: nothing was measured: none of the {arm.done:,} samples has a grade.", err=True)
    for arm in (arm for each in found for arm in each.arms if settings.max_failed is not None):
        if arm.ungraded > most_ungraded(settings.max_failed or "", arm.done):
            click.echo(
                f"{arm.label}: {arm.ungraded:,} of {arm.done:,} samples have no grade, "
                f"more than --max-failed {settings.max_failed}.",
                err=True,
            )
            code = FAILED
    return code
