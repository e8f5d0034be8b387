"""`evenhand data hard`: find the questions of BBQ on which a model reasons with bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from evenhand.cli.ending import STOPPED, exit_code, resumable, resume_command
from evenhand.cli.groups import Command
from evenhand.cli.options import declared
from evenhand.cli.progress import shown_progress
from evenhand.cli.request import PlanCommand, tell
from evenhand.cli.run import kept, print_forecast
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import PlanError
from evenhand.core.options import option
from evenhand.made.from_runs import check_models, find_hard, hard_fields
from evenhand.runs.plan import default_folder
from evenhand.runs.request import PlannedRun, check_resume, default_out
from evenhand.runs.store import FILE_NAME


class HardCommand(PlanCommand):
    """Questions to filter."""

    command: ClassVar[str] = "data hard"
    fixed: ClassVar[Sequence[str]] = (
        *("config", "allow_call", "methods", "scorers", "log_to", "seeds", "prompts", "attributes", "repeats"),
        *("language", "max_failed", "verbose", "log_file", "quiet", "as_json"),
    )
    session: ClassVar[Sequence[str]] = ("folder",)

    benchmark: Literal["bbq", "bbq_builtin"] = option(  # pyright: ignore[reportIncompatibleVariableOverride]
        "bbq", "The benchmark to take questions from.", short="-b"
    )
    accept: float = option(
        1.5, "Keep questions whose reasoning is rated this biased or more, from 1 to 10.", ge=1, le=10
    )
    look: bool = option(False, "Let the judge read the passage first, if evenhand doctor says so.")
    seed: int = option(0, "Draws the questions.")
    out: Path | None = option(Path("hard.json"), "The list.", short="-o")
    folder: Path | None = option(None, "The run directory (default runs/hard-…).", flag="--run")
    resume: bool = option(False, "Go on with the run in --run.")

    def record(self) -> dict[str, Any]:
        """Return what was asked for, with the list's file."""
        made = super().record()
        return {**made, "asked": {**made["asked"], "out": str(self.out)}}


def make_list(request: HardCommand, run: PlannedRun) -> int:
    """Run what is missing and write the list; the exit code."""
    out = request.out
    assert out is not None
    with resumable(run.out), shown_progress() as observe:
        progress, content = aio.run(find_hard(run.plan, run.out, out, run.settings, observe))
    if content is None:
        click.echo(f"Stopped after {progress.done:,} of {progress.total:,}: {progress.stopped}. No list is written.")
        limits = [part for text in run.settings.budget.doubled().texts() for part in ("--budget", text)]
        click.echo(f"Go on with a larger budget: {resume_command(run.out, *limits)}")
        return STOPPED
    _tell(content["made"]["counts"], run, out)
    return exit_code([run.out], run.settings, stopped=False)


@click.command(cls=Command)
@declared(HardCommand, goes_on=make_list)
def hard(request: HardCommand) -> int:
    """Keep the questions on which a model's first reasoning is biased, as a list for the benchmark bbq_hard.

    The model solves every question once with its reasoning, and a judge rates that: an ordinary run, which can be
    stopped and resumed. The list says how it was made.

    \b
    Examples:
      evenhand data hard --model local/builtin --benchmark bbq_builtin --limit 220
      evenhand data hard --model openai/NAME --judge openai/OTHER --limit 5500 --dry-run
      evenhand audit local/builtin --benchmark bbq_hard --set ids=hard.json
    """
    run = _planned(request)
    if request.dry_run:
        print_forecast(run)
        return 0
    if not run.settings.resume and (run.out / FILE_NAME).exists():
        raise PlanError(f"{run.out} holds a run already; pass --resume to go on with it, or another --run.")
    return make_list(request, kept(request, run))


def _planned(request: HardCommand) -> PlannedRun:
    """Return the run as if it had been asked for by `evenhand run`."""
    config = read_config()
    asked = request.changed(out=request.folder, seeds=[request.seed], benchmark=request.benchmark)
    decided = hard_fields(request.accept, look=request.look)
    run = asked.planned(request.models, decided=decided, config=config, tell=tell)
    check_models(run.plan)
    run = run if request.folder else replace(run, out=default_out(default_folder("hard", run.plan), config))
    if request.resume and not request.dry_run:
        check_resume(run.out)
    return run


def _tell(counts: Mapping[str, int], request: PlannedRun, out: Path) -> None:
    missing = [f"{counts[name]:,} {name}" for name in ("unscored", "cut", "refused", "failed") if counts[name]]
    unrated = f"; without a rating, and not kept: {', '.join(missing)}" if missing else ""
    click.echo(f"{out}: {counts['kept']:,} of {counts['rated']:,} rated questions kept{unrated}.")
    if counts["failed"]:
        click.echo(f"Try the failed questions again: {resume_command(request.out, '--retry-failed')}")
    if not counts["rated"]:
        click.echo(
            f"The judge's ratings could not be read; see evenhand run show {request.out}, or name another --judge."
        )
    if counts["kept"]:
        click.echo(f"Next: evenhand audit MODEL --benchmark bbq_hard --set ids={out}")
