"""`evenhand run`, `audit` and `compare`: execute a plan; the last two go on to the study and its report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import yaml

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.ending import exit_code, print_end, resumable
from evenhand.cli.groups import Command
from evenhand.cli.options import correction_option, plan_options
from evenhand.cli.output import current_output, output_options
from evenhand.cli.progress import shown_progress
from evenhand.cli.report import print_stored, print_study, report_path, study_and_report
from evenhand.cli.request import RunRequest, read_out, read_request
from evenhand.cli.tracking import check_trackers, log_to_trackers
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.format import NO_PRICE, count, money
from evenhand.core.progress import Progress
from evenhand.core.types import Usage
from evenhand.runs.dry import Forecast, forecast, may_think
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import not_fitted
from evenhand.runs.shards import Shard
from evenhand.studies.study import study

PLAN_FILE = "plan.yaml"
"""In a run's folder: the plan with all that its benchmark read from files of the user's own."""


@click.command(cls=Command)
@click.option(
    "--shard",
    metavar="I/N",
    help="Run part I of N of the samples, e.g. 2/8, on this machine; evenhand merge joins the parts.",
)
@plan_options
@output_options
def run(shard: str | None, **given: Any) -> int:
    """Run a plan and store it, without a report.

    \b
    Examples:
      evenhand run --model local/builtin --method default --method cot --limit 220 --out runs/first
      evenhand run --config plan.yaml --dry-run
      evenhand run --config plan.yaml --budget '$5' --resume
      evenhand run --config plan.yaml --shard 2/8 --out shards/2     (then: evenhand merge shards/*)
    """
    request = read_request(given, default_methods=["default"])
    if shard is not None:
        request = replace(request, settings=replace(request.settings, shard=Shard.parse(shard)))
        if given["out"] is None:
            request = replace(request, out=request.out / f"shard-{request.settings.shard}".replace("/", "-of-"))
    return execute(request, report=False)


@click.command(cls=Command)
@click.argument("model", required=False)
@plan_options
@output_options
def audit(model: str | None, **given: Any) -> int:
    """Measure one model on a benchmark: run, verdict and report.

    \b
    Examples:
      evenhand audit local/builtin --limit 220
      evenhand audit openai/gpt-4o-mini --benchmark bbq --limit 1100 --dry-run
      evenhand audit openai/my-model --base-url http://localhost:8000/v1 --benchmark bbq --orders 3
      evenhand audit openai/m --method mabrf --judge 'openai/j?base_url=https://HOST/v1&key=JUDGE_KEY'
      evenhand audit openai/gpt-4o-mini --prompts prompts.csv --attribute gender,race,age --repeats 10
    """
    if model is not None:
        given["models"] = (model, *given["models"])
    return execute(read_request(given, default_methods=["default"]), report=True)


@click.command(cls=Command)
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--baseline", help="The arm that the others are compared with (default: the first `default`).")
@correction_option
@click.option("--iterations", is_flag=True, help="Also compare the answers as they stood after each iteration.")
@plan_options
@output_options
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
        out, target = read_out(given["out"])
        out = out or (runs[0] if len(runs) == 1 else Path(f"compare-{'-'.join(each.name for each in runs)}"))
        return print_stored(runs, target or report_path(out), scorers=given["scorers"], log_to=given["log_to"], **how)
    request = read_request(given, default_methods=["default", "fair_prompt", "cot"])
    return execute(request, report=True, **how)


def execute(request: RunRequest, *, report: bool, **how: Any) -> int:
    """Forecast or run, then the study and its report, `how` their options say; the exit code."""
    print_examples(request)
    print_not_fitted(request)
    if request.dry_run:
        print_forecast(request)
        return 0
    check_trackers(request.settings.log_to)
    if request.report is not None and not report:
        raise UsageError("This command writes no report; --out names the folder of the run.")
    target = request.report or report_path(request.out)
    origin = {"report": str(target) if report else None, "how": how}
    progress = run_request(replace(request, settings=replace(request.settings, origin=origin)))
    if report and progress.statuses.total():
        skip_damaged = request.settings.skip_damaged
        result, written = study_and_report([request.out], target, skip_damaged=skip_damaged, **how)
        print_study(result, written)
        log_to_trackers(request.settings.log_to, result, [request.out], written)
    elif request.settings.shard is not None:
        click.echo(f"This is shard {request.settings.shard}. When all are done: evenhand merge SHARD… --out RUN")
    elif not report:
        if request.settings.log_to and progress.statuses.total():
            log_to_trackers(request.settings.log_to, study([request.out]), [request.out], None)
        click.echo(f"Next: evenhand report {request.out}")
    return exit_code([request.out], request.settings, stopped=progress.stopped is not None)


def run_request(request: RunRequest) -> Progress:
    """Run all that is not done yet, with progress on the way and a line at the end."""
    with resumable(request.out), shown_progress() as observer:
        progress = aio.run(run_plan(request.plan, request.out, request.settings, observer))
    print_end(request.out, progress, request.out, request.settings.budget)
    if own := load_benchmark(request.plan.benchmark, **request.plan.benchmark_options).portable():
        plan = request.plan.model_copy(update={"benchmark_options": own})
        content = yaml.safe_dump(plan.model_dump(exclude_defaults=True), sort_keys=False, allow_unicode=True)
        (request.out / PLAN_FILE).write_text(content, encoding="utf-8")
        click.echo(f"The same audit, anywhere: evenhand audit --config {request.out / PLAN_FILE}")
    return progress


def print_examples(request: RunRequest) -> None:
    """Show how prompts will be asked, and which are left out, before anything is called."""
    if request.settings.resume:
        return
    examples, left_out = load_benchmark(request.plan.benchmark, **request.plan.benchmark_options).examples()
    if examples:
        from rich.console import Console
        from rich.table import Table

        from evenhand.show.tables import safe_text
        from evenhand.show.tables.fitting import print_table

        table = Table(title="How prompts are asked (the first ones)", title_justify="left")
        table.add_column("for", no_wrap=True)
        table.add_column("prompt", overflow="fold")
        before = None
        for each in examples:
            if before not in (None, each.given):
                table.add_section()
            before = each.given
            table.add_row(safe_text(each.version), safe_text(each.asked))
        print_table(Console(), table)
    for sentence in left_out:
        click.echo(f"! {sentence}")


def print_not_fitted(request: RunRequest) -> None:
    """Say before anything is paid for what should be fitted to these models first."""
    if request.settings.resume:
        return
    benchmark = load_benchmark(request.plan.benchmark, **request.plan.benchmark_options)
    for sentence in not_fitted(request.plan, benchmark):
        click.echo(f"! {sentence}.")


def print_forecast(*requests: RunRequest) -> list[list[Forecast]]:
    """A table of what would be spent, for each request, and the sum where there are several; returns the rows."""
    from rich.console import Console
    from rich.table import Table

    from evenhand.show.tables.fitting import print_table

    total = Usage()
    console = Console()
    every: list[list[Forecast]] = []
    for request in requests:
        forecasts = aio.run(forecast(request.plan, request.settings.prices, request.settings.shard))
        every.append(forecasts)
        title = f"{request.plan.benchmark}, into {request.out}" if len(requests) > 1 else None
        columns = ("arm", "samples", "calls", "prompt tokens ≈", "reply tokens ≤", "money ≤")
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, no_wrap=column != "arm", overflow="fold")
        for each in forecasts:
            total += each.usage
            current_output().forecast.append({"arm": each.label, "samples": each.samples, **asdict(each.usage)})
            table.add_row(each.label, f"{each.samples:,}", *_amounts(each.usage))
        print_table(console, table)
    if len(requests) > 1:
        calls, sent, replied, money = _amounts(total)
        click.echo(f"In all: {calls} calls, {sent} tokens sent, at most {replied} in replies, money at most: {money}.")
    click.echo(
        "Nothing was called. Calls are those of a few samples against a stand-in, scaled up; fallbacks and retries"
    )
    click.echo("come on top. Tokens are estimated from text length; replies are counted at the most they may take.")
    if any(may_think(request.plan) for request in requests):
        click.echo("Thoughts of reasoning models come on top; --model-option reasoning=true counts them.")
    if total.cost is None:
        click.echo("For money, pass --price SPEC=INPUT/OUTPUT (per million tokens).")
    return every


def usage_sentence(usage: Usage) -> str:
    """What a dry run says of work that is not a run."""
    calls, sent, replied, money = _amounts(usage)
    return f"{calls} calls, about {sent} tokens sent, at most {replied} in replies, money at most: {money}"


def _amounts(usage: Usage) -> tuple[str, str, str, str]:
    """Calls, tokens sent, tokens in replies and money."""
    amounts = [count(each) for each in (usage.calls, usage.prompt_tokens, usage.completion_tokens)]
    return amounts[0], amounts[1], amounts[2], money(usage.cost, NO_PRICE)
