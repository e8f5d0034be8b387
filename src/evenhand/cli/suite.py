"""`evenhand suite`: one model on many benchmarks, and one page about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import click

from evenhand.cli.options import command
from evenhand.cli.output import current_output
from evenhand.cli.progress import exit_code
from evenhand.cli.request import PlanCommand, tell
from evenhand.cli.resume import kept_command
from evenhand.cli.run import print_forecast
from evenhand.core.config import read_config
from evenhand.core.errors import UsageError
from evenhand.core.options import argument
from evenhand.runs.request import PlannedRun, default_out, deployed, read_out, with_judge
from evenhand.runs.store import FILE_NAME
from evenhand.suite import (
    NO_TOTAL,
    PAGE,
    PlannedSuite,
    SuiteResult,
    areas_table,
    finding_of,
    plan_suite,
    run_suite,
    sum_of,
)


class SuiteCommand(PlanCommand):
    """A suite to run."""

    command: ClassVar[str] = "suite"
    fixed: ClassVar[Sequence[str]] = (
        *("config", "allow_call", "benchmark", "benchmark_options", "language", "prompts", "attributes", "repeats"),
        *("methods", "scorers", "limit", "orders", "data", "log_to"),
    )

    name: str = argument("The suite.", metavar="quick|full|FILE.yaml")


@command(SuiteCommand)
def suite(request: SuiteCommand) -> int:
    """Measure one model in many areas and print one page: findings, uncertainty, cost and what is missing.

    `quick` takes about 1,500 short calls, some 15 minutes on an API; `full` asks many more and takes hours. Your own
    file has the same form (see the documentation). Public data that is not downloaded (evenhand data pull NAME) is
    replaced by built-in sets where possible, and listed as missing otherwise.

    \b
    Examples:
      evenhand suite quick --model openai/gpt-4o-mini --dry-run
      evenhand suite quick --model openai/gpt-4o-mini --budget '$2' --out suite
      evenhand resume suite
      evenhand evidence pack suite/*/                 (a pack for auditors)
    """
    out, html = read_out(request.out)
    if html is not None:
        raise UsageError(f"--out of a suite is a folder, for its runs, not {html}.")
    if not request.models:
        raise UsageError("No model is named; pass --model, as in `evenhand suite quick --model local/builtin`.")
    config = read_config()
    fields = request.plan_fields(config)
    plan = request.with_models({}, request.models, request.judge)
    models = deployed(plan.models, request.preambles(config), "")
    planned = plan_suite(request.name, models, out, fields=fields)
    models = with_judge(planned.parts[0].run.plan.models, [part.run.plan for part in planned.parts], config, tell)
    if models != list(planned.parts[0].run.plan.models):
        planned = plan_suite(request.name, models, out, fields=fields)
    if out is None:
        planned = PlannedSuite(planned.name, planned.parts, planned.missing, default_out(planned.folder, config))
    request.check_prices([model for run in planned.runs for model in run.plan.every_model()])
    settings = request.settings_for(config)
    if request.dry_run:
        print_forecast(*(PlannedRun(each.plan, settings, planned.folder / each.folder) for each in planned.runs))
        _print_missing(planned.missing)
        return 0
    with kept_command(request, planned.folder, settings.budget) as listener:
        result = run_suite(planned, settings, listener)
    print_page(result)
    folders = [path.parent for path in planned.folder.rglob(FILE_NAME)]
    current_output().folders.extend(folders)
    return exit_code(folders, settings, stopped=result.stopped)


def print_page(result: SuiteResult) -> None:
    """One page: each area with what was found, what is missing, and the sum of the cost."""

    from evenhand.show.terminal import print_table

    click.echo(finding_of(result).sentence)
    print_table(areas_table(result))
    click.echo(NO_TOTAL)
    _print_missing(result.missing)
    click.echo(f"In all: {sum_of(result)}.")
    click.echo(f"Page: {result.folder / PAGE}, with more numbers and a report of each area")
    click.echo(f"For auditors: evenhand evidence pack {result.folder}/*/")


def _print_missing(missing: Any) -> None:
    if missing:
        click.echo("Not measured:")
    for each in missing:
        click.echo(f"  {each.area} ({each.reason})")
