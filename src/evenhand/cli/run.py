"""`evenhand run`, `audit` and `compare`: execute a plan; the last two go on to the study and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
import yaml

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.output import current_output
from evenhand.cli.progress import FAILED, exit_code, print_end, resumable, shown_progress
from evenhand.cli.report import (
    check_trackers,
    log_to_trackers,
    print_stored,
    print_study,
    report_path,
    study_and_report,
)
from evenhand.cli.request import PlanCommand
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.fields import ComparisonFields
from evenhand.core.files import write_text
from evenhand.core.format import NO_PRICE, count, money
from evenhand.core.options import Request, argument, option
from evenhand.core.progress import Progress
from evenhand.core.types import Usage
from evenhand.runs.dry import Drawn, Forecast, check_there, forecast, may_think
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings, check_batches, not_fitted, paid_prices
from evenhand.runs.request import PlannedRun, read_out
from evenhand.runs.shards import Shard
from evenhand.studies.study import study

PLAN_FILE = "plan.yaml"
"""In a run's folder: the plan with all that its benchmark read from files of the user's own."""


class RunCommand(PlanCommand):
    """A plan to run."""

    command: ClassVar[str] = "run plan"

    shard: str | None = option(
        None,
        "Run part I of N of the samples, e.g. 2/8, on this machine; evenhand run merge joins the parts.",
        metavar="I/N",
    )

    def settings_for(self, *args: Any, **kwargs: Any) -> Settings:
        made = super().settings_for(*args, **kwargs)
        return replace(made, shard=None if self.shard is None else Shard.parse(self.shard))


class AuditCommand(PlanCommand):
    """A model to measure."""

    command: ClassVar[str] = "audit"

    model: str | None = argument("The model to measure.", default=None)


class CompareCommand(ComparisonFields, PlanCommand):
    """Methods, models or runs to compare."""

    command: ClassVar[str] = "compare"

    runs: tuple[Path, ...] = argument("Runs made before.", default=())


def end_run(request: RunCommand, run: PlannedRun) -> int:
    """Run the plan and store it; the exit code."""
    del request
    return execute(run, report=False)


def end_study(request: PlanCommand, run: PlannedRun) -> int:
    """Run the plan, study it and write the report; the exit code."""
    how = request.given(ComparisonFields) if isinstance(request, ComparisonFields) else {}
    return execute(replace(run, report=run.report or read_out(request.out)[1]), report=True, **how)


@command(RunCommand, goes_on=end_run)
def plan(request: RunCommand) -> int:
    """Run a plan and store it, without a report.

    \b
    Examples:
      evenhand run --model local/builtin --method default --method cot --limit 220 --out runs/first
      evenhand run --config plan.yaml --dry-run
      evenhand run --config plan.yaml --budget '$5' --resume
      evenhand run --config plan.yaml --shard 2/8 --out shards/2     (then: evenhand run merge shards/*)
    """
    run = request.run_asked()
    if request.shard is not None and request.out is None:
        run = replace(run, out=run.out / f"shard-{run.settings.shard}".replace("/", "-of-"))
    return begin(request, run, end_run)


@command(AuditCommand, goes_on=end_study)
def audit(request: AuditCommand) -> int:
    """Measure one model on a benchmark; print a verdict and write a report.

    \b
    Examples:
      evenhand audit local/builtin --limit 220
      evenhand audit openai/gpt-4o-mini --benchmark bbq --limit 1100 --dry-run
      evenhand audit openai/my-model --base-url http://localhost:8000/v1 --benchmark bbq --orders 3
      evenhand audit openai/m --method mabrf --judge 'openai/j?base_url=https://HOST/v1&key=JUDGE_KEY'
      evenhand audit openai/gpt-4o-mini --prompts prompts.csv --attribute gender,race,age --repeats 10
    """
    if request.model is not None:
        request = request.changed(models=(request.model, *request.models))
    return begin(request, request.run_asked(), end_study)


@command(CompareCommand, goes_on=end_study)
def compare(request: CompareCommand) -> int:
    """Compare methods or models, sample by sample: run them first, or name RUNS made before.

    \b
    Examples:
      evenhand compare --model local/builtin --limit 220          (default, fair_prompt and cot)
      evenhand compare -m local/a.gguf -m local/b.gguf --method default --benchmark bbq --limit 1100
      evenhand compare -m openai/gpt-4o-mini --system now.md --system fairer.md --limit 220
      evenhand compare runs/before runs/after
      evenhand compare runs/first --scorer builtin --iterations   (after evenhand run rescore)
    """
    if not request.runs:
        # Prompts are compared with each other; methods come on top only where they are named.
        methods = ("default",) if len(request.system) > 1 else ("default", "fair_prompt", "cot")
        return begin(request, request.run_asked(methods), end_study)
    if request.models or request.config:
        raise UsageError("Give either runs made before or a plan to run, not both.")
    runs = request.runs
    out, target = read_out(request.out)
    out = out or (runs[0] if len(runs) == 1 else Path(f"compare-{'-'.join(each.name for each in runs)}"))
    how = request.given(ComparisonFields)
    return print_stored(runs, target or report_path(out), scorers=request.scorers or (), log_to=request.log_to, **how)


@click.group(
    cls=Group,
    default="plan",
    lazy={
        "show": ("evenhand.cli.stored:show", "Print a run's plan and state, or one sample's story."),
        "rescore": ("evenhand.cli.stored:rescore", "Score the stored answers of a run with another scorer."),
        "export": ("evenhand.cli.stored:export", "Write a run's results as CSV, Parquet or JSON Lines."),
        "trust": ("evenhand.cli.stored:trust", "Show what a run from elsewhere would do here, and trust it."),
        "merge": ("evenhand.cli.stored:merge", "Merge the shards of a plan into one run."),
        "push": ("evenhand.cli.stored:push", "Copy a run to object storage."),
        "pull": ("evenhand.cli.stored:pull", "Copy a run from object storage."),
    },
)
def run() -> None:
    """Run a plan and store the results, and work with one stored run.

    \b
    Examples:
      evenhand run --config plan.yaml --out runs/first         (short for evenhand run plan)
      evenhand run show runs/first
      evenhand run export runs/first --out results.csv
    """


run.add_command(plan)
C = TypeVar("C", bound=PlanCommand)


def begin(request: C, run: PlannedRun, goes_on: Callable[[C, PlannedRun], int]) -> int:
    """Forecast a run, or begin it and keep what was asked, so that `evenhand resume` ends it in the same way."""
    print_examples(run)
    print_not_fitted(run)
    if request.dry_run:
        print_forecast(run)
        return 0
    return goes_on(request, kept(request, run))


def kept(request: Request, run: PlannedRun) -> PlannedRun:
    """Return the run with what was asked for in its record."""
    origin = request.record()
    if run.report is not None:
        origin["report"] = str(run.report)
    return replace(run, settings=replace(run.settings, origin=origin))


def execute(run: PlannedRun, *, report: bool, **how: Any) -> int:
    """Run what is missing, then the study and its report, `how` their options say; the exit code."""
    check_trackers(run.settings.log_to)
    if run.report is not None and not report:
        raise UsageError("This command writes no report; --out names the folder of the run.")
    target = run.report or report_path(run.out)
    progress = run_request(run)
    unmeasured: Sequence[str] = ()
    if report and progress.statuses.total():
        skip_damaged = run.settings.skip_damaged
        result, written = study_and_report([run.out], target, skip_damaged=skip_damaged, **how)
        print_study(result, written)
        log_to_trackers(run.settings.log_to, result, [run.out], written)
        unmeasured = result.unmeasured
    elif run.settings.shard is not None:
        click.echo(f"This is shard {run.settings.shard}. When all are done: evenhand run merge SHARD… --out RUN")
    elif not report:
        if run.settings.log_to and progress.statuses.total():
            log_to_trackers(run.settings.log_to, study([run.out]), [run.out], None)
        click.echo(f"Next: evenhand report {run.out}")
    code = exit_code([run.out], run.settings, stopped=progress.stopped is not None)
    return code or (FAILED if unmeasured else 0)


def run_request(request: PlannedRun, check: Callable[[Mapping[str, Any]], None] | None = None) -> Progress:
    """Run all that is not done yet, with progress on the way and a line at the end; `check` may refuse its facts."""
    with resumable(request.out), shown_progress() as observer:
        progress = aio.run(run_plan(request.plan, request.out, request.settings, observer, check))
    print_end(request.out, progress, request.out, request.settings.budget)
    if own := load_benchmark(request.plan.benchmark, **request.plan.benchmark_options).portable():
        plan = request.plan.model_copy(update={"benchmark_options": own})
        content = yaml.safe_dump(plan.model_dump(exclude_defaults=True), sort_keys=False, allow_unicode=True)
        write_text(request.out / PLAN_FILE, content)  # in place of a link that a stranger may have put there
        click.echo(f"To repeat this audit elsewhere: evenhand audit --config {request.out / PLAN_FILE}")
    return progress


def print_examples(request: PlannedRun) -> None:
    """Show how prompts will be asked, and which are left out, before anything is called."""
    if request.settings.resume:
        return
    examples, left_out = load_benchmark(request.plan.benchmark, **request.plan.benchmark_options).examples()
    current_output().examples += [asdict(each) for each in examples]
    current_output().left_out += left_out
    if examples:
        from evenhand.show.table import Table, columns
        from evenhand.show.terminal import print_table

        last = [place for place, (one, next_one) in enumerate(pairwise(examples)) if one.given != next_one.given]
        rows = [[each.version, each.asked] for each in examples]
        title = "How prompts are asked (the first ones)"
        print_table(Table(title, columns("for", "prompt", words=2), rows, ends=last))
    for sentence in left_out:
        click.echo(f"! {sentence}")


def print_not_fitted(request: PlannedRun) -> None:
    """Say before anything is paid for what should be fitted to these models first."""
    if request.settings.resume:
        return
    benchmark = load_benchmark(request.plan.benchmark, **request.plan.benchmark_options)
    for sentence in not_fitted(request.plan, benchmark):
        click.echo(f"! {sentence}.")


def print_forecast(*requests: PlannedRun, made: Path | None = None, drawn: Drawn | None = None) -> list[list[Forecast]]:
    """A table of what would be spent, for each request, and the sum where there are several; returns the rows.

    Models below the folder `made` are trained first. `drawn` gets the samples that are tried.
    """
    from evenhand.show.table import Table, columns
    from evenhand.show.terminal import print_table

    heads = columns("arm", "samples", "calls", "prompt tokens ≈", "reply tokens ≤", "money ≤")
    check_there((model for request in requests for model in request.plan.every_model()), made)
    total, least = Usage(), 0
    every: list[list[Forecast]] = []
    drawn = {} if drawn is None else drawn
    for request in requests:
        check_batches(request.plan, request.settings)
        prices = paid_prices(request.plan.every_model(), request.settings)
        forecasts = aio.run(forecast(request.plan, prices, request.settings.shard, drawn))
        every.append(forecasts)
        title = f"{request.plan.benchmark}, into {request.out}" if len(requests) > 1 else ""
        for each in forecasts:
            total, least = total + each.usage, least + each.least_calls
            calls = {"calls": each.least_calls, "most_calls": each.usage.calls}
            current_output().forecast.append(
                {"arm": each.label, "samples": each.samples, **asdict(each.usage), **calls}
            )
        rows = [[each.label, count(each.samples), *_amounts(each.usage, each.least_calls)] for each in forecasts]
        print_table(Table(title, heads, rows))
    if len(requests) > 1:
        calls, sent, replied, money = _amounts(total, least)
        click.echo(f"In all: {calls} calls, {sent} tokens sent, at most {replied} in replies, money at most: {money}.")
    click.echo(
        "Nothing was called. The calls are extrapolated from a few samples against a stand-in model: the lower number"
    )
    click.echo(
        "holds if every answer can be read at once, the upper if each must be asked for again. Retries of failed calls"
    )
    click.echo("come on top. Tokens are estimated from text length; replies are counted at their maximum length.")
    if any(may_think(request.plan) for request in requests):
        click.echo("Thoughts of reasoning models come on top; --model-option reasoning=true counts them.")
    if any(request.settings.batch_api and not request.settings.batch_queue for request in requests):
        click.echo("Calls of models that go into batches are counted at half their price.")
    if total.cost is None:
        click.echo("For money, pass --price SPEC=INPUT/OUTPUT (per million tokens).")
    return every


def usage_sentence(usage: Usage, least_calls: int | None = None) -> str:
    """What a dry run says of work that is not a run."""
    calls, sent, replied, money = _amounts(usage, least_calls)
    return f"{calls} calls, about {sent} tokens sent, at most {replied} in replies, money at most: {money}"


def _amounts(usage: Usage, least_calls: int | None = None) -> tuple[str, str, str, str]:
    """Calls, as a range where there is one, tokens sent, tokens in replies and money."""
    amounts = [count(each) for each in (usage.calls, usage.prompt_tokens, usage.completion_tokens)]
    if least_calls is not None and least_calls < usage.calls:
        amounts[0] = f"{count(least_calls)}–{amounts[0]}"
    return amounts[0], amounts[1], amounts[2], money(usage.cost, NO_PRICE)
