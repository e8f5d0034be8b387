"""`evenhand data hard`: find the questions of BBQ on which a model reasons with bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.benchmarks.bbq.hard import SOURCES
from evenhand.cli.ending import STOPPED, exit_code, resumable, resume_command
from evenhand.cli.groups import Command
from evenhand.cli.options import plan_options_without
from evenhand.cli.progress import shown_progress
from evenhand.cli.request import RunRequest, check_resume, default_out, read_request
from evenhand.cli.run import print_forecast
from evenhand.core import aio
from evenhand.core.errors import PlanError
from evenhand.made.from_runs import check_models, find_hard, hard_fields
from evenhand.runs.plan import default_folder
from evenhand.runs.store import FILE_NAME

_FIXED = ("config", "methods", "scorers", "log_to")
"""Options of a plan that the filter decides."""
_OWN = ("benchmark", "models", "seeds", "out", "resume")
"""Options of a plan that mean something narrower here."""


@click.command(cls=Command)
@click.option("--model", "-M", "models", multiple=True, metavar="[ROLE=]SPEC", help="The model, or one for a role.")
@click.option(
    "--benchmark",
    "-b",
    type=click.Choice(SOURCES),
    default="bbq",
    show_default=True,
    help="The benchmark to take questions from.",
)
@click.option(
    "--accept",
    type=click.FloatRange(1, 10),
    default=1.5,
    show_default=True,
    help="Keep questions whose reasoning is rated this biased or more, from 1 to 10.",
)
@click.option("--look", is_flag=True, help="Let the judge read the passage first, if evenhand doctor says so.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the questions.")
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default="hard.json",
    show_default=True,
    help="The list.",
)
@click.option("--run", "folder", type=click.Path(path_type=Path), help="The run directory (default runs/hard-…).")
@click.option("--resume", is_flag=True, help="Go on with the run in --run.")
@plan_options_without(*_FIXED, *_OWN)
def hard(out: Path, folder: Path | None, **given: Any) -> int:
    """Keep the questions on which a model's first reasoning is biased, as a list for the benchmark bbq_hard.

    The model solves every question once with its reasoning, and a judge rates that: an ordinary run, which can be
    stopped and resumed. The list says how it was made.

    \b
    Examples:
      evenhand data hard --model local/builtin --benchmark bbq_builtin --limit 220
      evenhand data hard --model openai/NAME --judge openai/OTHER --limit 5500 --dry-run
      evenhand audit local/builtin --benchmark bbq_hard --set ids=hard.json
    """
    request = _request(given, folder)
    if request.dry_run:
        print_forecast(request)
        return 0
    if not request.settings.resume and (request.out / FILE_NAME).exists():
        raise PlanError(f"{request.out} holds a run already; pass --resume to go on with it, or another --run.")
    return make_list(replace(request, settings=replace(request.settings, origin={"hard": str(out)})), out)


def make_list(request: RunRequest, out: Path) -> int:
    """Run what is missing and write the list; the exit code."""
    with resumable(request.out), shown_progress() as observe:
        progress, content = aio.run(find_hard(request.plan, request.out, out, request.settings, observe))
    if content is None:
        click.echo(f"Stopped after {progress.done:,} of {progress.total:,}: {progress.stopped}. No list is written.")
        limits = [part for text in request.settings.budget.doubled().texts() for part in ("--budget", text)]
        click.echo(f"Go on with a larger budget: {resume_command(request.out, *limits)}")
        return STOPPED
    _tell(content["made"]["counts"], request, out)
    return exit_code([request.out], request.settings, stopped=False)


def _request(given: Mapping[str, Any], folder: Path | None) -> RunRequest:
    """The run as if it had been asked for by `evenhand run`."""
    fixed = {"config": None, "methods": (), "scorers": (), "seeds": (given["seed"],), "out": folder}
    decided = hard_fields(given["accept"], look=given["look"])
    request = read_request({**given, **fixed, "resume": False}, default_methods=(), decided=decided)
    resume: bool = given["resume"]
    check_models(request.plan)
    request = request if folder else replace(request, out=default_out(default_folder("hard", request.plan)))
    if resume and not request.dry_run:
        check_resume(request.out)
    return replace(request, settings=replace(request.settings, resume=resume))


def _tell(counts: Mapping[str, int], request: RunRequest, out: Path) -> None:
    missing = [f"{counts[name]:,} {name}" for name in ("unscored", "cut", "refused", "failed") if counts[name]]
    unrated = f"; without a rating, and not kept: {', '.join(missing)}" if missing else ""
    click.echo(f"{out}: {counts['kept']:,} of {counts['rated']:,} rated questions kept{unrated}.")
    if counts["failed"]:
        click.echo(f"Try the failed questions again: {resume_command(request.out, '--retry-failed')}")
    if not counts["rated"]:
        click.echo(f"The judge's ratings could not be read; see evenhand show {request.out}, or name another --judge.")
    if counts["kept"]:
        click.echo(f"Next: evenhand audit MODEL --benchmark bbq_hard --set ids={out}")
