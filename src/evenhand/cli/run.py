"""`evenhand run`, `audit` and `compare`: execute a plan; the last two go on to the study and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evenhand import aio
from evenhand.cli.groups import Command
from evenhand.cli.listener import print_end
from evenhand.cli.options import RunRequest, plan_options, read_request
from evenhand.cli.progress import shown_progress
from evenhand.cli.report import print_study, report_path, study_and_report
from evenhand.errors import UsageError
from evenhand.runs.dry import forecast
from evenhand.runs.runner import Progress, Runner
from evenhand.types import Usage

STOPPED = 3
"""Exit code of a run that the budget stopped: nothing is wrong, but it is not complete."""


@click.command(cls=Command)
@plan_options
def run(**given: Any) -> int:
    """Run a plan and store it, without a report.

    \b
    Examples:
      evenhand run --model local/builtin --method default --method cot --limit 220 --out runs/first
      evenhand run --config plan.yaml --dry-run
      evenhand run --config plan.yaml --budget '$5' --resume
    """
    return execute(read_request(given, default_methods=["default"]), report=False)


@click.command(cls=Command)
@click.argument("model", required=False)
@plan_options
def audit(model: str | None, **given: Any) -> int:
    """Measure one model on a benchmark: run, verdict and report.

    \b
    Examples:
      evenhand audit local/builtin --limit 220
      evenhand audit openai/gpt-4o-mini --benchmark bbq --limit 1100 --dry-run
      evenhand audit openai/my-model --base-url http://localhost:8000/v1 --benchmark bbq --orders 3
    """
    if model is not None:
        given["models"] = (model, *given["models"])
    return execute(read_request(given, default_methods=["default"]), report=True)


@click.command(cls=Command)
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--baseline", help="The arm that the others are compared with (default: the first `default`).")
@click.option(
    "--correction",
    type=click.Choice(["holm", "bh"]),
    default="holm",
    show_default=True,
    help="Of p-values for multiple tests: Holm, or Benjamini-Hochberg.",
)
@click.option("--iterations", is_flag=True, help="Also compare the answers as they stood after each iteration.")
@plan_options
def compare(runs: tuple[Path, ...], baseline: str | None, correction: str, iterations: bool, **given: Any) -> int:
    """Compare methods or models, sample by sample: run them first, or name RUNS made before.

    \b
    Examples:
      evenhand compare --model local/builtin --limit 220          (default, fair_prompt and cot)
      evenhand compare -M local/a.gguf -M local/b.gguf -m default --benchmark bbq --limit 1100
      evenhand compare runs/before runs/after
      evenhand compare runs/first --scorer builtin --iterations   (after evenhand rescore)
    """
    how: dict[str, Any] = {"baseline": baseline, "correction": correction, "iterations": iterations}
    if runs:
        if given["models"] or given["config"]:
            raise UsageError("Give either runs made before or a plan to run, not both.")
        out = given["out"] or (runs[0] if len(runs) == 1 else Path(f"compare-{'-'.join(each.name for each in runs)}"))
        print_study(*study_and_report(list(runs), report_path(out), scorers=given["scorers"], **how))
        return 0
    request = read_request(given, default_methods=["default", "fair_prompt", "cot"])
    return execute(request, report=True, **how)


def execute(request: RunRequest, *, report: bool, **how: Any) -> int:
    """Forecast or run, then the study and its report, `how` their options say; the exit code."""
    if request.dry_run:
        print_forecast(request)
        return 0
    progress = run_request(request)
    if report and progress.statuses.total():
        print_study(*study_and_report([request.out], report_path(request.out), **how))
    elif not report:
        click.echo(f"Next: evenhand report {request.out}")
    return STOPPED if progress.stopped else 0


def run_request(request: RunRequest) -> Progress:
    """Run all that is not done yet, with progress on the way and a line at the end."""
    with shown_progress() as observer:
        runner = Runner(request.plan, request.out, request.settings, observer)
        progress = aio.run(runner.run())
    print_end(request.out, progress, request.out)
    return progress


def print_forecast(*requests: RunRequest) -> None:
    """A table of what would be spent, for each request, and the sum where there are several."""
    from rich.console import Console
    from rich.table import Table

    from evenhand.reports.tables.fitting import print_table

    total = Usage()
    console = Console()
    for request in requests:
        forecasts = aio.run(forecast(request.plan, request.settings.prices))
        title = request.plan.benchmark if len(requests) > 1 else None
        columns = ("arm", "samples", "calls", "prompt tokens ≈", "reply tokens ≤", "money ≤")
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, no_wrap=column != "arm", overflow="fold")
        for each in forecasts:
            total += each.usage
            table.add_row(each.label, f"{each.samples:,}", *_amounts(each.usage))
        print_table(console, table)
    if len(requests) > 1:
        calls, sent, replied, money = _amounts(total)
        click.echo(f"In all: {calls} calls, {sent} tokens sent, at most {replied} in replies, money at most: {money}.")
    click.echo(
        "Nothing was called. Calls are those of a few samples against a stand-in, scaled up; fallbacks and retries"
    )
    click.echo("come on top. Tokens are estimated from text length; replies are counted at the most they may take.")
    if total.cost is None:
        click.echo("For money, pass --price SPEC=INPUT/OUTPUT (per million tokens).")


def usage_sentence(usage: Usage) -> str:
    """What a dry run says of work that is not a run."""
    calls, sent, replied, money = _amounts(usage)
    return f"{calls} calls, about {sent} tokens sent, at most {replied} in replies, money at most: {money}"


def _amounts(usage: Usage) -> tuple[str, str, str, str]:
    """Calls, tokens sent, tokens in replies and money."""
    money = "price unknown" if usage.cost is None else f"${usage.cost:,.2f}"
    return f"{usage.calls:,}", f"{usage.prompt_tokens:,}", f"{usage.completion_tokens:,}", money
