"""`evenhand train debate`: have roles debate topics and a referee score their bias, as data for training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.cli.given_options import plan_options_without
from evenhand.cli.groups import Command
from evenhand.cli.output import output_options
from evenhand.cli.progress import STOPPED, exit_code, resumable, shown_workflow
from evenhand.cli.request import RunRequest, read_request
from evenhand.cli.run import print_forecast, usage_sentence
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted
from evenhand.core.files import scratch
from evenhand.core.progress import Progress
from evenhand.methods.debate.agents import SCORINGS
from evenhand.runs.parts import Settings
from evenhand.studies.results import Estimate
from evenhand.studies.study import study
from evenhand.training.debates import METHOD, TopicsFile, debate_fields, debating_model, missing_topics, run_debate

_FIXED = ("benchmark", "settings", "methods", "scorers", "limit", "orders", "reading", "judge_model", "log_to")
"""Options of a plan that the command decides, or that are about other kinds of samples."""
_OWN = ("data", "temperature", "max_tokens")
"""Options of a plan that mean something narrower here."""


@click.command(cls=Command)
@click.option(
    "--bias", help="age (default), nationality, institution, beauty, profession, several with commas, or all."
)
@click.option("--topics", type=click.IntRange(1), metavar="N", help="This many topics of each bias (default: all).")
@click.option("--roles", type=click.IntRange(2), help="Debaters of each topic (default 3).")
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each debate (default 5).")
@click.option("--words", type=click.IntRange(10), help="Words of a statement (default 80); see --max-tokens.")
@click.option("--teacher", metavar="SPEC", help="The model that debates instead: teacher-student.")
@click.option("--referee", metavar="SPEC", help="The model that scores (default: the one that debates).")
@click.option("--data", metavar="FILE", help="Roles and topics of your own: a YAML file, or a folder of BIAS.yaml.")
@click.option("--generate", is_flag=True, help="Have the debating model write the topics that are missing.")
@click.option(
    "--topics-file", type=click.Path(path_type=Path), help="The file for these topics (default debates-BIAS-N.yaml)."
)
@click.option("--temperature", type=float, help="Of the debaters (default 0.7); the referee's is 0.")
@click.option("--max-tokens", type=int, help="Longest statement (default 160).")
@click.option("--referee-tokens", type=int, help="Longest verdict (default: as its form needs).")
@click.option(
    "--scoring",
    type=click.Choice(SCORINGS),
    help="Numbers (default), or odds of one word; see evenhand models calibrate --as-judge.",
)
@plan_options_without(*_FIXED, *_OWN)
@output_options
def debate(teacher: str | None, referee: str | None, generate: bool, topics_file: Path | None, **given: Any) -> int:
    """Have roles debate topics over several rounds while a referee scores their bias (RLDF).

    Each topic is a neutral question. In every round each role says what it thinks; the referee scores and ranks the
    statements by their bias, from 0 (none) to 10, and in the next round everyone tries to be less biased. Calls per
    topic: rounds × (roles + 1). `evenhand train pairs` makes training data of what was said.

    \b
    Examples:
      evenhand train debate --bias age --topics 10 --model local/builtin --dry-run       (calls, tokens and money)
      evenhand train debate --bias age --topics 60 --model hf/PATH                       (self-reflection)
      evenhand train debate --bias age --topics 60 --model hf/PATH --teacher openai/NAME (teacher-student)
      evenhand train debate --bias beauty --topics 200 --generate --model openai/NAME    (topics by the model)
      evenhand train debate --data mine.yaml --model openai/NAME --budget '$5'
    """
    models = [f"{role}={spec}" for role, spec in (("teacher", teacher), ("referee", referee)) if spec]
    given["models"] = (*given["models"], *models)
    seed = (given["seeds"] or (0,))[0]
    topics = missing_topics(given, generate=generate, file=topics_file, seed=seed)
    request = _request(given if topics is None else {**given, "data": str(topics.path)})
    if request.dry_run:
        return _forecast(request, topics, given)
    settings = replace(request.settings, origin={"debate": True})
    try:
        with resumable(request.out), shown_workflow(request.out, settings.budget) as listener:
            progress = aio.run(run_debate(request.plan, request.out, settings, listener, topics))
    except BudgetExhausted as error:
        click.echo(f"Stopped: {error}. The same command with a larger --budget begins with what is cached.")
        return STOPPED
    if progress is None:
        there, path = topics.written(), topics.path  # pyright: ignore[reportOptionalMemberAccess]
        click.echo(f"The model has no further ones. To debate the {there:,} there are: --data {path}")
        return 1
    return end_debate(request.out, settings, progress)


def end_debate(out: Path, settings: Settings, progress: Progress) -> int:
    """The scores of a run of debates, and what comes next; the exit code."""
    code = exit_code([out], settings, stopped=progress.stopped is not None)
    if progress.statuses["graded"]:
        _print_scores(out)
        click.echo(f"Next: evenhand train pairs {out}")
    elif progress.done:
        click.echo(f"No statement has a score, so there is nothing to learn from; see evenhand run show {out}")
    return code


def _request(given: Mapping[str, Any]) -> RunRequest:
    """The command as a run of the benchmark and the method."""
    unused: dict[str, Any] = dict.fromkeys(("benchmark", "limit", "orders", "reading", "temperature", "max_tokens"))
    empty: dict[str, Any] = {"settings": (), "methods": (), "scorers": ()}
    return read_request({**given, **unused, **empty}, default_methods=[METHOD], decided=debate_fields(given))


def _forecast(request: RunRequest, topics: TopicsFile | None, given: Mapping[str, Any]) -> int:
    """What the debates would take, and before them the topics that have to be written."""
    if topics is None or topics.is_written():
        if topics is not None:
            click.echo(f"{topics.path}: the topics were written before.")
        print_forecast(request)
        return 0
    with scratch() as folder:
        draft = replace(topics, path=folder / "topics.yaml")
        with request.plan.prompts().used():
            used = aio.run(draft.pretend(debating_model(request.plan), request.settings.prices))
        click.echo(f"Topics first: {usage_sentence(used)}; more where topics come twice.")
        print_forecast(_request({**given, "data": str(draft.path)}))
    return 0


def _print_scores(run: Path) -> None:
    """The bias scores of each round, with intervals over topics."""
    from rich.console import Console

    from evenhand.core.format import count
    from evenhand.show.table import Content, Table, columns
    from evenhand.show.terminal import print_table
    from evenhand.show.view import estimate_cell

    found, rows = study([run]), list[list[Content]]()
    for arm in found.arms:
        steps = [each for each in found.by_iteration if each.arm == arm.id]
        for number, step in enumerate(steps or [arm], 1):
            score, high = step.estimate("last_score"), step.estimate("high")
            values = [replace(estimate_cell(each), notes=()) for each in (score, high)]
            rows.append([arm.label, str(number), *values, count(score.n if score else 0)])
    console = Console()
    print_table(console, Table("", columns("debate", "round", "bias score (0 to 10)", "above 3, %", "topics"), rows))
    for arm in found.arms:
        if (change := arm.estimate("change")) is not None and change.value is not None:
            console.print(f"{arm.label}: {_change_sentence(change)}", markup=False, highlight=False)


def _change_sentence(change: Estimate) -> str:
    """Whether the bias score changed from the first round to the last."""
    from evenhand.core.format import interval

    points = interval(change.value, change.low, change.high)
    if change.low is None or change.high is None or change.low <= 0 <= change.high:
        return (
            f"the change of the bias score from the first round to the last cannot be told apart from zero: {points}."
        )
    return f"the bias score {'fell' if change.high < 0 else 'rose'} from the first round to the last: {points} points."
