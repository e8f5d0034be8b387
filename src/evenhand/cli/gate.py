"""`evenhand gate`: pass or fail by limits on a run's metrics, for CI."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.options import command
from evenhand.cli.output import OutputFields, current_output
from evenhand.cli.progress import exit_code
from evenhand.cli.report import report_path, study_and_report
from evenhand.cli.request import PlanCommand, check_file
from evenhand.cli.run import end_study, kept, print_examples, print_forecast, run_request
from evenhand.core.errors import UsageError, check_names
from evenhand.core.fields import sizes_by_metric
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.untrusted import one_line
from evenhand.runs.parts import Settings
from evenhand.runs.stored import as_stored_json
from evenhand.runs.summary import read_summary
from evenhand.show.gate import annotation, in_order, junit, line, sentence, summary
from evenhand.studies.conclusions import refused
from evenhand.studies.gate import (
    Check,
    Condition,
    arm_before,
    check,
    check_against,
    check_directions,
    check_units,
    made_with,
    overall,
    read_baseline,
    settled,
    whole_arms,
)
from evenhand.studies.results import StudyResult
from evenhand.studies.study import metric_info, study

BEYOND = 5
"""Exit code of a gate with a limit that is exceeded."""
UNDECIDED = 6
"""Exit code of a gate with no limit exceeded, but one of which the interval is on both sides."""


class LimitFields(Request):
    """The limits, and where the result is written; the same for a stored run and one that is made first."""

    run: Path | None = argument("A stored run.", default=None)
    fail_if: Several = option(
        (),
        "Fail on: '|bias_ambig| > 10', 'accuracy_disambig < 80', '|bias_ambig[GROUP]| > 20'; repeat for more.",
        metavar="CONDITION",
        common=True,
    )
    against: Path | None = option(
        None,
        "Fail if decidedly worse than this baseline, a file that --json wrote.",
        metavar="FILE",
        common=True,
    )
    tolerance: Several = option(
        (),
        "With --against: the loss to tolerate, in the headline and its guardrails or in one metric (default 0); "
        "repeat for more.",
        metavar="[METRIC=]N",
        common=True,
    )
    detect: Several = option(
        (),
        "With --against: the smallest loss that must not go unnoticed. A run that is not decidedly worse then passes "
        "if it has enough samples to detect such a loss with 80 % power; repeat for more metrics.",
        metavar="[METRIC=]N",
        common=True,
    )
    undecided: Literal["fail", "pass"] = option("fail", "What to do if an interval includes its limit.", common=True)
    arms: Several = option((), "Hold only this arm to the limits (default: all).", flag="--arm", metavar="LABEL")
    junit_file: Path | None = option(
        None, "Write the checks as JUnit XML.", flag="--junit", metavar="FILE", common=True
    )
    summary_file: Path | None = option(
        None,
        "Append a table in Markdown (default: the step summary of GitHub Actions).",
        flag="--summary",
        metavar="FILE",
        env="GITHUB_STEP_SUMMARY",
    )


class GateCommand(LimitFields, PlanCommand):
    """Limits to hold a run to."""

    command: ClassVar[str] = "gate"
    fixed: ClassVar[Sequence[str]] = ("log_to",)


@command(GateCommand, goes_on=end_study)
def gate(request: GateCommand) -> int:
    """Check the metrics of a stored RUN, or of a new run, against limits: pass or fail.

    \b
    Examples:
      evenhand gate runs/first --fail-if '|bias_ambig| > 10' --fail-if 'accuracy_disambig < 80'
      evenhand gate --config plan.yaml --fail-if '|bias_ambig| > 10' --junit gate.xml
      evenhand compare runs/first --json > baseline.json
      evenhand gate runs/second --against baseline.json --detect 20
      evenhand gate runs/second --against baseline.json --tolerance 3

    A limit fails if the whole 95 % interval is beyond it (exit code 5) and passes if the whole interval is within it;
    otherwise the gate cannot tell (exit code 6, or 0 with --undecided pass). More samples narrow the interval.
    """
    conditions = [Condition.parse(text) for text in request.fail_if]
    if request.against is None and (request.tolerance or request.detect):
        raise UsageError("--tolerance and --detect need a baseline: --against FILE.")
    if not conditions and request.against is None:
        raise UsageError("Give a limit: --fail-if '|bias_ambig| > 10', or --against FILE.")
    check_file(request.junit_file, "the checks", "--junit")
    check_file(request.summary_file, "the table", "--summary")
    most = sizes_by_metric(request.tolerance, "--tolerance") or {"": 0.0}
    detect = sizes_by_metric(request.detect, "--detect")
    result, folder, settings = (
        _stored(request, request.run) if request.run is not None else _made(request, conditions, (*most, *detect))
    )
    if result is None:
        return 0
    state = read_summary(folder)
    arms = whole_arms(result, request.arms)
    checks = [check(result, arm, condition) for condition in conditions for arm in arms]
    if request.against is not None:
        baseline = read_baseline(request.against, state.benchmark, made_with(*result.provenance.values()))
        checks += [each for arm in arms for each in check_against(result, arm, baseline, most, detect)]
    check_units(conditions, result.metrics)
    checks = settled(result, checks)
    _warn_of_signs(result, conditions)
    found = overall(checks)
    passes = request.undecided == "pass"
    code = exit_code([folder], settings, stopped=state.done < state.total)
    code = code or {"passed": 0, "failed": BEYOND, "cannot tell": 0 if passes else UNDECIDED}[found]
    shown = [asdict(each) for each in checks]
    current_output().gate = {"state": found, "undecided": request.undecided, "checks": shown}
    _print(checks, passes=passes)
    doubts = [*result.caveats, *refused(result)]  # a limit holds of the answers that there are
    for each in doubts:
        click.echo(f"! {one_line(each)}")
    if code == UNDECIDED:
        few = any(each.state == "cannot tell" and each.value is not None for each in checks)
        more = "ask more questions (--limit), or " if few else ""
        click.echo(f"A check could not be decided: {more}let it pass (--undecided pass).", err=True)
    click.echo(sentence(checks))
    if request.junit_file is not None:
        request.junit_file.parent.mkdir(parents=True, exist_ok=True)
        request.junit_file.write_bytes(junit(result.title, checks, undecided_passes=passes))
    if request.summary_file is not None:
        with request.summary_file.open("a", encoding="utf-8") as file:
            file.write(summary(result.title, checks, doubts))
    return code


def _stored(request: GateCommand, run: Path) -> tuple[StudyResult, Path, Settings]:
    """The study of a stored run; options that describe a run to make are refused."""
    for name in request.model_fields_set - {*LimitFields.model_fields, *OutputFields.model_fields, "max_failed"}:
        raise UsageError(f"{request.face(name).flag} is for a run to be made, and {run} is made; remove one of them.")
    current_output().folders.append(run)
    return study([run]), run, Settings(max_failed=request.max_failed)


def _made(
    request: GateCommand, conditions: Sequence[Condition], named: Sequence[str]
) -> tuple[StudyResult | None, Path, Settings]:
    """Make a run with its report; metrics and the baseline are checked before the first call. None after a dry run."""
    if not request.config and not request.models:
        raise UsageError("Name a stored run, a --config or a --model.")
    run = request.run_asked()
    metrics = {m.name: m for m in load_benchmark(run.plan.benchmark, **run.plan.benchmark_options).metrics()}
    check_names("metric", metrics, *(condition.metric for condition in conditions))
    check_directions(named, {name: metric.better for name, metric in metrics.items()})
    check_units(conditions, (metric_info(metric, {}) for metric in metrics.values()))
    labels = [arm.label for arm in run.plan.arms()]
    check_names("arm", labels, *request.arms)
    against = request.against
    if against is not None:
        baseline = read_baseline(against, run.plan.benchmark)
        for label in request.arms or labels:
            arm_before(baseline, label, alone=len(labels) == 1)

    def check_alike(facts: Mapping[str, Any]) -> None:
        if against is not None:
            read_baseline(against, run.plan.benchmark, made_with(as_stored_json(facts)))

    print_examples(run)
    if request.dry_run:
        print_forecast(run)
        return None, run.out, run.settings
    run_request(kept(request, run), check_alike)
    result, current_output().report = study_and_report([run.out], run.report or report_path(run.out))
    click.echo(f"Report: {current_output().report}")
    return result, run.out, run.settings


def _warn_of_signs(result: StudyResult, conditions: Sequence[Condition]) -> None:
    best_at_zero = {metric.name for metric in result.metrics if metric.better == "zero"}
    for each in conditions:
        if each.metric in best_at_zero and not each.absolute:
            both = replace(each, absolute=True)
            click.echo(f"Zero is the best {each.metric}; '{both}' holds in both directions.", err=True)


def _print(checks: Sequence[Check], *, passes: bool) -> None:
    """A line for each check, and annotations where GitHub Actions reads them."""
    for each in in_order(checks):
        click.echo(line(each))
        if os.environ.get("GITHUB_ACTIONS") == "true" and (text := annotation(each, undecided_passes=passes)):
            click.echo(text, err=True)
