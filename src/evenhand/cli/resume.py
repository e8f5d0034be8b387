"""`evenhand resume`: go on with a stored run, or the runs of a paper, from what its folder says alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import orjson

from evenhand.cli.ending import resumable
from evenhand.cli.groups import Command
from evenhand.cli.listener import shown_workflow
from evenhand.cli.options import allow_call_option, skip_damaged_option
from evenhand.cli.output import output_options
from evenhand.cli.request import RunRequest, check_resume
from evenhand.cli.run import execute
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.paths import cache_folder
from evenhand.models.budget import Limits
from evenhand.models.endpoints import check_no_call
from evenhand.runs.parts import Settings
from evenhand.runs.store import FILE_NAME
from evenhand.runs.stored import StoredRun
from evenhand.runs.summary import most_ungraded


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--budget", multiple=True, metavar="LIMIT", help="In place of the run's own: '$5', '500 calls', '2M tokens'."
)
@click.option("--concurrency", "-c", type=click.IntRange(1), help="Concurrent calls (default: as before).")
@click.option("--retry-failed", is_flag=True, help="Run failed samples again.")
@click.option("--max-failed", metavar="LIMIT", help="As of evenhand run (default: as before).")
@allow_call_option
@skip_damaged_option
@output_options
def resume(run: Path, **given: Any) -> int:
    """Go on with RUN, a folder of a run, a paper or a suite, and end as its first command would have.

    Plan, endpoints, prices and budget are in the folder; API keys are read from the environment again.

    \b
    Examples:
      evenhand resume runs/first
      evenhand resume runs/first --budget '$10'
      evenhand resume runs/first --retry-failed --concurrency 8
    """
    if given["max_failed"] is not None:
        most_ungraded(given["max_failed"], 1)
    if run.is_file() or (run / FILE_NAME).is_file():
        return _resume_run(run, given)
    return _resume_paper(run, given)


def _resume_run(folder: Path, given: dict[str, Any]) -> int:
    stored = StoredRun.open(folder, skip_damaged=given["skip_damaged"])
    with closing(stored.store):
        stored.check_files()
        kept = stored.store.get("settings")
    settings = (
        Settings(resume=True, cache=cache_folder() / "responses.sqlite") if kept is None else Settings.restored(kept)
    )
    settings = replace(
        settings,
        retry_failed=given["retry_failed"],
        allow_call=given["allow_call"],
        skip_damaged=given["skip_damaged"],
        **({"budget": Limits.parse(given["budget"])} if given["budget"] else {}),
        **{name: given[name] for name in ("concurrency", "max_failed") if given[name] is not None},
    )
    request, origin = RunRequest(stored.plan, settings, folder, dry_run=False), settings.origin
    if "debate" in origin:
        return _resume_debate(request)
    if "hard" in origin:
        from evenhand.cli.data_hard import make_list

        return make_list(request, Path(origin["hard"]))
    if origin and origin["report"] is None:
        return execute(request, report=False)
    report = Path(origin["report"]) if origin else None
    return execute(replace(request, report=report), report=True, **origin.get("how", {}))


def _resume_debate(request: RunRequest) -> int:
    from evenhand.cli.debate import end_debate
    from evenhand.training.debates import run_debate

    with resumable(request.out), shown_workflow(request.out, request.settings.budget) as listener:
        progress = aio.run(run_debate(request.plan, request.out, request.settings, listener))
    assert progress is not None  # only missing topics stop debates from beginning
    return end_debate(request.out, request.settings, progress)


def _resume_paper(folder: Path, given: dict[str, Any]) -> int:
    from evenhand.cli.paper import COMMAND_NAME, make
    from evenhand.cli.suite import make as make_suite
    from evenhand.papers.base import PAPERS

    file = folder / COMMAND_NAME
    if not file.is_file():
        check_resume(folder)
        raise UsageError(
            f"{folder} does not say how its runs were made; repeat the command with --resume, or name one run."
        )
    try:
        command: dict[str, Any] = orjson.loads(file.read_bytes())
        kept: dict[str, Any] = {name: _tuples(value) for name, value in command["given"].items()}
        suite = command.get("suite")
        paper = None if suite is not None else PAPERS.get(command["paper"])
    except (ValueError, LookupError, AttributeError) as error:
        raise UsageError(f"{file} is damaged; repeat the command with --resume.") from error
    if not given.pop("allow_call"):
        check_no_call(kept, file)
    if given["skip_damaged"] and paper is None:
        raise UsageError("--skip-damaged is for one run or a paper; name the folder of the damaged run of the suite.")
    changed = {name: value for name, value in given.items() if value}
    paths = {"out": folder, "cache": Path(kept["cache"]) if kept["cache"] else None}
    again = {"retry_failed": False, **kept, **changed, **paths, "resume": True, "dry_run": False}
    return make_suite(str(suite), again) if paper is None else make(paper, again)


def _tuples(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value
