"""`evenhand resume`: go on with a stored run, or with the runs of a folder, from what the folder says alone.

A run keeps what was asked for in its settings, a folder of several runs in a file: the words of the command and the
fields of its request. The command that has these words says how its runs go on (`declared(…, goes_on=…)`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import orjson

from evenhand.cli.main import main
from evenhand.cli.options import Declaration, command, declaration_of
from evenhand.cli.output import OutputFields
from evenhand.cli.progress import resumable, shown_workflow
from evenhand.cli.request import AllowCallOption, MaxFailedOption, SkipDamagedOption
from evenhand.core.errors import UsageError
from evenhand.core.files import write_json
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.progress import Listener
from evenhand.core.registry import files_kept
from evenhand.models.budget import Limits
from evenhand.models.endpoints import check_no_call
from evenhand.runs.request import PlannedRun, RunFields, check_resume
from evenhand.runs.store import FILE_NAME
from evenhand.runs.stored import StoredRun
from evenhand.runs.summary import most_ungraded
from evenhand.runs.trust import MARKS, fields_demands, is_marked, with_mark

COMMAND_NAME = "command.json"
"""The file in a folder of several runs that says how they were made."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, as it is stored: the words of a command and the fields of its request."""

    command: str
    fields: Mapping[str, Any]
    report: Path | None = None

    def declaration(self) -> Declaration[Any]:
        found: click.Command = main
        context = click.Context(main)
        for word in self.command.split():
            assert isinstance(found, click.Group)
            child = found.get_command(context, word)
            if child is None:
                raise LookupError(word)
            found = child
        made = declaration_of(found)
        assert made is not None
        return made

    def request(self) -> Request:
        return self.declaration().request.parse(f"command {self.command}", self.fields)


class ResumeCommand(AllowCallOption, MaxFailedOption, SkipDamagedOption, OutputFields):
    """A run to go on with."""

    run: Path = argument("The folder of a run, a paper or a suite.")
    budget: Several = option((), "Replaces the run's budget: '$5', '500 calls', '2M tokens'.", metavar="LIMIT")
    concurrency: int | None = option(None, "Concurrent calls (default: as before).", short="-c", ge=1)
    retry_failed: bool = option(False, "Run failed samples again.")


@command(ResumeCommand)
def resume(request: ResumeCommand) -> int:
    """Continue the run, paper or suite in the folder RUN, and end as its first command would have.

    Plan, endpoints, prices and budget are in the folder; API keys are read from the environment again.

    \b
    Examples:
      evenhand resume runs/first
      evenhand resume runs/first --budget '$10'
      evenhand resume runs/first --retry-failed --concurrency 8
    """
    if request.max_failed is not None:
        most_ungraded(request.max_failed, 1)
    if request.run.is_file() or (request.run / FILE_NAME).is_file():
        return _resume_run(request)
    return _resume_folder(request)


def _resume_run(request: ResumeCommand) -> int:
    stored = StoredRun.open(request.run, skip_damaged=request.skip_damaged)
    with closing(stored.store):
        plan, settings = stored.acting()
        stored.check_files()
        kept, left_out = stored.kept_files(), [] if stored.is_own else stored.demands().optional
    if left_out:
        told = "; ".join(left_out)
        click.echo(f"{request.run} was not made on this machine, so this is left out: it {told}.", err=True)
        click.echo(f"To go on with it: evenhand run trust {request.run}", err=True)
    settings = replace(
        settings,
        retry_failed=request.retry_failed,
        allow_call=request.allow_call,
        skip_damaged=request.skip_damaged,
        **({"budget": Limits.parse(request.budget)} if request.budget else {}),
        **{name: value for name in ("concurrency", "max_failed") if (value := getattr(request, name)) is not None},
    )
    asked = read_asked(settings.origin)
    goes_on = asked.declaration().goes_on
    assert goes_on is not None
    with files_kept(kept), stored.only_its_code():
        return goes_on(asked.request(), PlannedRun(plan, settings, request.run, asked.report))


def _resume_folder(request: ResumeCommand) -> int:
    file = request.run / COMMAND_NAME
    if not file.is_file():
        check_resume(request.run)
        raise UsageError(
            f"{request.run} does not say how its runs were made; repeat the command with --resume, or name one run."
        )
    try:
        stored = orjson.loads(file.read_bytes())
        asked = read_asked(stored)
        again: Request = asked.request()
    except (ValueError, LookupError, AttributeError, TypeError, UsageError) as error:
        raise UsageError(f"{file} is damaged or of another version; repeat the command with --resume.") from error
    if needed := folder_demands(stored):
        raise UsageError(
            f"{request.run} was not made on this machine, and its command {needed[0]}; look at what it would do, and "
            f"trust it: evenhand run trust {request.run}"
        )
    if not request.allow_call:
        check_no_call(asked.fields, file)
    if request.skip_damaged and "skip_damaged" not in type(again).model_fields:
        raise UsageError("--skip-damaged is for one run or a paper; name the folder of the damaged run of the suite.")
    names = {"budget", "concurrency", "retry_failed", "max_failed", "skip_damaged"} & type(again).model_fields.keys()
    changed = {name: value for name in names if (value := getattr(request, name))}
    return asked.declaration().body(again.changed(**changed, out=request.run, resume=True))


def folder_demands(stored: Mapping[str, Any]) -> list[str]:
    """What the command of a folder would do beyond what this machine knows; nothing if it was given here."""
    if is_marked(_command(stored), stored.get(MARKS)):
        return []
    asked = read_asked(stored)
    kinds = asked.declaration().request.model_fields
    paths = [name for name in asked.fields if name in kinds and "Path" in str(kinds[name].annotation) and name != "out"]
    return [
        *fields_demands(asked.command, asked.fields),
        *(f"uses the path {asked.fields[name]}" for name in paths if asked.fields[name]),
    ]


def _command(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name != MARKS}


def trust_folder(file: Path) -> None:
    """Mark the command in a folder of several runs as one that may be given on this machine."""
    stored = orjson.loads(file.read_bytes())
    write_json(file, {**stored, MARKS: with_mark(_command(stored), stored.get(MARKS))})


def read_asked(stored: Mapping[str, Any]) -> Asked:
    """Return what was asked for, of the record of a run or the file of a folder; runs made in Python have nothing."""
    report = stored.get("report")
    return Asked(stored["command"] if stored else "compare", stored.get("asked", {}), Path(report) if report else None)


@contextmanager
def kept_command(request: Request, folder: Path, budget: Limits) -> Generator[Listener]:
    """A listener that shows everything, and keeps the request in the folder, so that it can be resumed."""
    if isinstance(request, RunFields) and request.resume:
        check_resume(folder)
    file = folder / COMMAND_NAME

    def keep() -> None:
        record = orjson.loads(orjson.dumps(request.record(), default=str))
        write_json(file, {**record, MARKS: with_mark(record, [])})

    def keep_first() -> None:
        if not file.exists():
            keep()

    try:
        with resumable(folder), shown_workflow(folder, budget, keep_first) as listener:
            yield listener
        keep()
    finally:
        if file.exists() and next(folder.rglob(FILE_NAME), None) is None:
            file.unlink()
            with suppress(OSError):
                folder.rmdir()
