"""`evenhand report`, and the study with its tables, report and trackers, which audit and compare end with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click

from evenhand.cli.options import command
from evenhand.cli.output import current_output
from evenhand.cli.progress import FAILED
from evenhand.cli.request import LogToOption, SkipDamagedOption, check_file
from evenhand.core.errors import PlanError, StoreError
from evenhand.core.fields import ComparisonFields
from evenhand.core.format import count, money
from evenhand.core.options import Several, argument, option
from evenhand.runs.store import Store
from evenhand.show.markup import clean
from evenhand.studies.results import StudyResult
from evenhand.studies.samples import shown_samples
from evenhand.studies.study import study


def check_trackers(specs: Sequence[str]) -> None:
    """Refuse a tracker that does not exist or cannot be used, before anything is called."""
    if specs:
        from evenhand.integrations.tracking import load_tracker

        for spec in specs:
            load_tracker(spec)


def log_to_trackers(specs: Sequence[str], result: StudyResult, runs: Sequence[Path], report: Path | None) -> None:
    """Log the results; a tracker that fails is reported with the command that tries again."""
    if not specs:
        return
    from evenhand.integrations.tracking import failure, log_results

    for spec in specs:
        try:
            for place in log_results(spec, result, runs, report):
                click.echo(f"Logged to {spec}: {clean(place)}")
        except Exception as error:  # of any class: the packages and the servers are not ours
            again = shlex.join(["evenhand", "report", *map(str, runs), "--log-to", spec])
            click.echo(
                f"! {spec} did not take the results: {clean(failure(error))}. They are stored; {again}", err=True
            )


class ReportCommand(ComparisonFields, LogToOption, SkipDamagedOption):
    runs: tuple[Path, ...] = argument("The runs.")
    out: Path | None = option(None, "HTML file (default report.html in the first RUN).", short="-o")
    samples: int = option(300, "Maximum number of samples in the report.", ge=0)
    scorers: Several = option(
        (),
        "Use this scorer's scores instead of the plan's; evenhand run rescore makes them.",
        flag="--scorer",
        short="-s",
        metavar="SPEC",
    )


@command(ReportCommand)
def report(request: ReportCommand) -> int:
    """Analyse stored RUNS again and write the report; no model is called.

    \b
    Examples:
      evenhand report runs/first
      evenhand report runs/first --scorer builtin --out by-builtin.html
      evenhand report runs/first --log-to mlflow:http://localhost:5000
    """
    check_file(request.out, "the report")
    return print_stored(
        request.runs,
        request.out or report_path(request.runs[0]),
        samples=request.samples,
        scorers=request.scorers,
        skip_damaged=request.skip_damaged,
        log_to=request.log_to,
        **request.given(ComparisonFields),
    )


def report_path(directory: Path) -> Path:
    return directory / "report.html"


def print_stored(runs: Sequence[Path], target: Path, *, log_to: Sequence[str] = (), **how: Any) -> int:
    """The study of stored runs and its report; the exit code."""
    check_trackers(log_to)
    result, written = study_and_report(runs, target, **how)
    current_output().folders.extend(runs)
    print_study(result, written)
    log_to_trackers(log_to, result, runs, written)
    return FAILED if result.unmeasured else 0


def study_and_report(
    runs: Sequence[Path],
    target: Path,
    *,
    samples: int = 300,
    scorers: Sequence[str] = (),
    benchmark: str | None = None,
    skip_damaged: bool = False,
    **how: Any,
) -> tuple[StudyResult, Path]:
    """Compute the study, `how` its options say, and write its report to `target`; of one benchmark alone, if named."""
    from evenhand.show.report import write_report

    result = study(runs, scorers=scorers, skip_damaged=skip_damaged, **how)
    output = current_output()
    output.shown, output.reading = result, {"scorers": scorers, "skip_damaged": skip_damaged}
    if benchmark not in (None, result.benchmark):
        raise PlanError(f"{runs[0]} is a run of {result.benchmark}, not of {benchmark}.")
    if len(runs) == 1 and not scorers and not how.get("iterations"):
        _keep_headline(runs[0], result)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_report(result, shown_samples(runs, samples, scorers=scorers, skip_damaged=skip_damaged), target)
    return result, target


def _keep_headline(run: Path, result: StudyResult) -> None:
    """Store the headline with the number of samples that it is about, so that lists of runs need not compute it."""
    from evenhand.studies.conclusions import headline_of

    done = sum(sum(arm.statuses.values()) for arm in result.arms)
    with suppress(StoreError), closing(Store(run)) as store:  # a run that cannot be written can still be studied
        store.put(headline={"text": headline_of(result), "done": done})


def print_study(result: StudyResult, target: Path) -> None:
    """What was found, then caveats, tables and warnings on standard output; no numbers if there are none."""
    from rich.console import Console

    from evenhand.show.sections import sections_of
    from evenhand.show.sections.comparison import effect_table
    from evenhand.show.sections.overview import arm_table
    from evenhand.show.terminal import print_findings, print_table, safe_text

    current_output().report = target
    console = Console()
    print_findings(console, result)
    if result.nothing_measured:
        click.echo(f"Report: {target}")
        return
    print_table(arm_table(result))
    if (used := result.scoring).calls:
        paid = f"{count(used.calls)} calls, {count(used.tokens)} tokens, {money(used.cost, 'price unknown')}"
        click.echo(f"On top of these, for controls of judges and for scorers: {paid}.")
    if result.effects:
        print_table(effect_table(result))
    sections = sections_of(result)
    for table in (table for section in sections for table in section.tables(result)):
        print_table(table)
    for sentence in (each for section in sections for each in section.sentences(result)):
        console.print(f"• {sentence}", markup=False, highlight=False)
    for warning in result.warnings:
        console.print(safe_text(f"! {warning}"))
    for note in result.notes:
        console.print(safe_text(f"Note: {note}"), style="dim")
    click.echo(f"Report: {target}")
