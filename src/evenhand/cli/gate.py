"""`evenhand gate`: pass or fail by limits on a run's metrics, for CI."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.ending import exit_code
from evenhand.cli.groups import Command
from evenhand.cli.options import plan_options_without
from evenhand.cli.output import current_output, output_options
from evenhand.cli.report import report_path, study_and_report
from evenhand.cli.request import RunRequest, read_request
from evenhand.cli.run import print_examples, print_forecast, run_request
from evenhand.core.errors import UnknownNameError, UsageError
from evenhand.runs.parts import Settings
from evenhand.runs.summary import read_summary
from evenhand.show.gate import annotation, junit, line, summary
from evenhand.studies.gate import (
    Check,
    Condition,
    check,
    check_against,
    overall,
    parse_tolerances,
    read_baseline,
    settled,
    whole_arms,
)
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study

BEYOND = 5
"""Exit code of a gate with a limit that is exceeded."""
UNDECIDED = 6
"""Exit code of a gate with no limit exceeded, but one of which the interval is on both sides."""
_WITH_RUN = {
    *("run", "fail_if", "against", "tolerance", "undecided", "arms", "junit_file", "summary_file", "max_failed"),
    *("verbose", "log_file", "quiet", "as_json"),
}
"""The options of a gate on a stored run; the others describe a run to make."""


@click.command(cls=Command)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option(
    "--fail-if",
    multiple=True,
    metavar="CONDITION",
    help="What fails: '|bias_ambig| > 10', 'accuracy_disambig < 80', '|bias_ambig[GROUP]| > 20'; repeat for more.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fail if worse than this baseline, which --json wrote, by more than --tolerance.",
)
@click.option(
    "--tolerance",
    multiple=True,
    metavar="[METRIC=]N",
    help="With --against: of the headline and its guardrails, or of one metric; repeat for more.",
)
@click.option(
    "--undecided",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="What follows if an interval is on both sides of its limit.",
)
@click.option("--arm", "arms", multiple=True, metavar="LABEL", help="Hold only this arm to the limits (default: all).")
@click.option(
    "--junit", "junit_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the checks as JUnit XML."
)
@click.option(
    "--summary",
    "summary_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="GITHUB_STEP_SUMMARY",
    help="Append a table in Markdown (default: the step summary of GitHub Actions).",
)
@plan_options_without("log_to")
@output_options
def gate(
    run: Path | None,
    fail_if: tuple[str, ...],
    against: Path | None,
    tolerance: tuple[str, ...],
    undecided: str,
    arms: tuple[str, ...],
    junit_file: Path | None,
    summary_file: Path | None,
    **given: Any,
) -> int:
    """Pass or fail by limits on the metrics of a stored RUN, or of a run that is made first.

    \b
    Examples:
      evenhand gate runs/first --fail-if '|bias_ambig| > 10' --fail-if 'accuracy_disambig < 80'
      evenhand gate --config plan.yaml --fail-if '|bias_ambig| > 10' --junit gate.xml
      evenhand compare runs/first --json > baseline.json
      evenhand gate runs/second --against baseline.json --tolerance 3

    A limit fails if the whole 95 % interval is beyond it (exit code 5) and passes if the whole interval is within it;
    otherwise the gate cannot tell (exit code 6, or 0 with --undecided pass). More samples narrow the interval.
    """
    conditions = [Condition.parse(text) for text in fail_if]
    if bool(against) is not bool(tolerance):
        raise UsageError("--against and --tolerance go together: what to compare with, and how much worse may pass.")
    if not conditions and against is None:
        raise UsageError("Give a limit: --fail-if '|bias_ambig| > 10', or --against FILE --tolerance N.")
    most = parse_tolerances(tolerance)
    result, folder, settings = _stored(run, given) if run is not None else _made(given, conditions, against, most)
    if result is None:
        return 0
    state = read_summary(folder)
    checks = [check(result, arm, condition) for condition in conditions for arm in whole_arms(result, arms)]
    if against is not None:
        baseline = read_baseline(against, state.benchmark)
        checks += [each for arm in whole_arms(result, arms) for each in check_against(result, arm, baseline, most)]
    checks = settled(result, checks)
    _warn_of_signs(result, conditions)
    found = overall(checks)
    passes = undecided == "pass"
    code = exit_code([folder], settings, stopped=state.done < state.total)
    code = code or {"passed": 0, "failed": BEYOND, "cannot tell": 0 if passes else UNDECIDED}[found]
    current_output().gate = {"state": found, "undecided": undecided, "checks": [asdict(each) for each in checks]}
    _print(checks, passes=passes)
    if code == UNDECIDED:
        said = "An interval crosses its limit: ask more questions (--limit), or let it pass (--undecided pass)."
        click.echo(said, err=True)
    click.echo(f"Gate: {found}.")
    if junit_file is not None:
        junit_file.parent.mkdir(parents=True, exist_ok=True)
        junit_file.write_bytes(junit(result.title, checks, undecided_passes=passes))
    if summary_file is not None:
        with summary_file.open("a", encoding="utf-8") as file:
            file.write(summary(result.title, checks))
    return code


def _stored(run: Path, given: dict[str, Any]) -> tuple[StudyResult, Path, Settings]:
    """The study of a stored run; options that describe a run to make are refused."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _WITH_RUN and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{parameter.opts[0]} is for a run to be made, and {run} is made; remove one of them.")
    current_output().folders.append(run)
    return study([run]), run, Settings(max_failed=given["max_failed"])


def _made(
    given: dict[str, Any], conditions: Sequence[Condition], against: Path | None, most: Mapping[str, float]
) -> tuple[StudyResult | None, Path, Settings]:
    """Make a run with its report; metrics and the baseline are checked before the first call. None after a dry run."""
    if not given["config"] and not given["models"]:
        raise UsageError("Name a stored run, a --config or a --model.")
    request: RunRequest = read_request(given, default_methods=["default"])
    known = [m.name for m in load_benchmark(request.plan.benchmark, **request.plan.benchmark_options).metrics()]
    for name in (*(condition.metric for condition in conditions), *filter(None, most)):
        if name not in known:
            raise UnknownNameError("metric", name, known)
    if against is not None:
        read_baseline(against, request.plan.benchmark)
    print_examples(request)
    if request.dry_run:
        print_forecast(request)
        return None, request.out, request.settings
    target = request.report or report_path(request.out)
    origin: dict[str, Any] = {"report": str(target), "how": {}}
    run_request(replace(request, settings=replace(request.settings, origin=origin)))
    result, current_output().report = study_and_report([request.out], target)
    click.echo(f"Report: {target}")
    return result, request.out, request.settings


def _warn_of_signs(result: StudyResult, conditions: Sequence[Condition]) -> None:
    best_at_zero = {metric.name for metric in result.metrics if metric.better == "zero"}
    for each in conditions:
        if each.metric in best_at_zero and not each.absolute:
            both = replace(each, absolute=True)
            click.echo(f"Zero is the best {each.metric}; '{both}' holds in both directions.", err=True)


def _print(checks: Sequence[Check], *, passes: bool) -> None:
    """A line for each check, and annotations where GitHub Actions reads them."""
    for each in checks:
        click.echo(line(each))
        if os.environ.get("GITHUB_ACTIONS") == "true" and (text := annotation(each, undecided_passes=passes)):
            click.echo(text, err=True)
