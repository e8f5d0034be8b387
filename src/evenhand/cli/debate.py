"""`evenhand debate`: have roles debate topics and a referee score their bias, as data for training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from evenhand.benchmarks.debates import Debates
from evenhand.cli.debate_generate import TopicsFile, print_writing
from evenhand.cli.options import Order, plan_options_without, read_order
from evenhand.cli.run import STOPPED, print_forecast, run_order
from evenhand.data.debates import DebateTopics, load_topics
from evenhand.errors import BudgetExhausted, UsageError
from evenhand.methods.debate.options import SCORINGS
from evenhand.runs.plan import ModelPlan
from evenhand.studies.study import study

BENCHMARK, METHOD = "debates", "debate"
_FIXED = ("benchmark", "settings", "methods", "scorers", "limit", "orders", "reading")
"""Options of a plan that the command decides, or that are about other kinds of samples."""
_OWN = ("data", "temperature", "max_tokens")
"""Options of a plan that mean something narrower here."""
_OF_METHOD = ("rounds", "temperature", "max_tokens", "referee_tokens", "scoring")
_OF_BENCHMARK = ("bias", "topics", "roles")


@click.command()
@click.option(
    "--bias", help="age (default), nationality, institution, beauty, profession, several with commas, or all."
)
@click.option(
    "--topics", type=click.IntRange(1), metavar="N", help="This many topics of each (default: all there are)."
)
@click.option("--roles", type=click.IntRange(2), help="Debaters of each topic (default 3).")
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each debate (default 5).")
@click.option("--teacher", metavar="SPEC", help="The model that debates instead: teacher-student.")
@click.option("--referee", metavar="SPEC", help="The model that scores (default: the one that debates).")
@click.option("--data", metavar="FILE", help="Roles and topics of your own, as YAML.")
@click.option("--generate", is_flag=True, help="Have the debating model write the topics that are missing.")
@click.option(
    "--topics-file", type=click.Path(path_type=Path), help="Where these go (default debates-BIAS-N.yaml); used again."
)
@click.option("--temperature", type=float, help="Of the debaters (default 0.7); the referee has 0.")
@click.option("--max-tokens", type=int, help="Of a statement (default 160).")
@click.option("--referee-tokens", type=int, help="Of a verdict (default: what its form takes); more for thinking.")
@click.option(
    "--scoring", type=click.Choice(SCORINGS), help="Numbers (default), or odds of one word; see doctor --judge."
)
@plan_options_without(*_FIXED, *_OWN)
def debate(teacher: str | None, referee: str | None, generate: bool, topics_file: Path | None, **given: Any) -> int:
    """Debates over rounds between roles, scored for bias by a referee: RLDF.

    Each topic is a neutral question. In every round each role says what it thinks; the referee scores and ranks the
    statements by their bias, from 0 (none) to 10, and in the next round everyone tries to be less biased. Calls per
    topic: rounds × (roles + 1). `evenhand pairs` makes training data of what was said.

    \b
    Examples:
      evenhand debate --bias age --topics 10 --model local/builtin --dry-run       (calls, tokens and money)
      evenhand debate --bias age --topics 60 --model hf/PATH                       (self-reflection)
      evenhand debate --bias age --topics 60 --model hf/PATH --teacher openai/NAME (teacher-student)
      evenhand debate --bias beauty --topics 200 --generate --model openai/NAME    (topics by the model)
      evenhand debate --data mine.yaml --model openai/NAME --budget '$5'
    """
    source = _checked(given, generate)
    models = [f"{role}={spec}" for role, spec in (("teacher", teacher), ("referee", referee)) if spec]
    given["models"] = (*given["models"], *models)
    if generate and given["topics"] > len(source.topics):
        path = topics_file or Path(f"debates-{source.bias}-{given['topics']}.yaml")
        return _grown(given, TopicsFile(path, source, given["topics"], (given["seeds"] or (0,))[0]))
    return _execute(_order(given))


def _checked(given: dict[str, Any], generate: bool) -> DebateTopics:
    """The topics to begin with; what does not go together is refused."""
    if generate and given["topics"] is None:
        raise UsageError("--generate writes up to a number of topics; say how many with --topics.")
    several = given["bias"] == "all" or "," in (given["bias"] or "")
    if generate and several:
        raise UsageError("--generate writes topics on one type of bias at a time; name one with --bias.")
    options = {name: given[name] for name in ("bias", "roles", "data") if given[name] is not None}
    # As many topics as a model writes: only what is not written can be missing.
    Debates(**options, topics=None if generate else given["topics"]).sources  # noqa: B018 - read to be checked
    return load_topics(None if several else given["bias"], given["data"])


def _order(given: dict[str, Any]) -> Order:
    """The command as a run of the benchmark and the method."""
    of_method = [f"{name}={given[name]}" for name in _OF_METHOD if given[name] is not None]
    fixed: dict[str, Any] = {
        "benchmark": BENCHMARK,
        "settings": tuple(f"{name}={given[name]}" for name in _OF_BENCHMARK if given[name] is not None),
        "methods": (f"{METHOD}:{','.join(of_method)}",) if of_method else (),
        **dict.fromkeys(("limit", "orders", "reading", "temperature", "max_tokens")),
        "scorers": (),
    }
    return read_order({**given, **fixed}, default_methods=[METHOD])


def _grown(given: dict[str, Any], topics: TopicsFile) -> int:
    """Have the missing topics written, then debate them all; written once, they are used again."""
    order = _order({**given, "data": str(topics.path)})
    writer = _debating(order)
    if topics.is_written():
        click.echo(f"{topics.path}: the topics were written before.")
        return _execute(order)
    if order.dry_run:
        with TemporaryDirectory() as folder:
            draft = replace(topics, path=Path(folder) / "topics.yaml")
            print_writing(draft.pretend(), writer.spec, order.settings)
            return _execute(_order({**given, "data": str(draft.path)}))
    try:
        spent = topics.fill(writer, order.settings)
    except BudgetExhausted as error:
        click.echo(f"Stopped: {error}. The same command with a larger --budget begins with what is cached.")
        return STOPPED
    there = len(load_topics(file=topics.path).topics)
    if there < topics.count:
        click.echo(f"The model has no further ones. To debate the {there:,} there are: --data {topics.path}")
        return 1
    left = replace(order.settings, budget=order.settings.budget.less(spent))
    return _execute(replace(order, settings=left))


def _debating(order: Order) -> ModelPlan:
    first = order.plan.models[0]
    return first.get("teacher") or first["base"]


def _execute(order: Order) -> int:
    """Forecast, or run and show the scores by round."""
    if order.dry_run:
        print_forecast(order)
        return 0
    progress = run_order(order)
    if progress.statuses["graded"]:
        _print_scores(order.out)
        click.echo(f"Next: evenhand pairs {order.out}")
    elif progress.done:
        click.echo(f"No statement has a score, so there is nothing to learn from; see evenhand show {order.out}")
    return STOPPED if progress.stopped else 0


def _print_scores(run: Path) -> None:
    """The bias scores of each round, with intervals over topics."""
    from rich.console import Console
    from rich.table import Table

    from evenhand.reports.format import interval

    found = study([run])
    table = Table("debate", "round", "bias score (0 to 10)", "above 3, %", "topics", title_justify="left")
    for arm in found.arms:
        steps = [each for each in found.by_iteration if each.arm == arm.id]
        for number, step in enumerate(steps or [arm], 1):
            score, high = step.estimate("last_score"), step.estimate("high")
            texts = [interval(each.value, each.low, each.high) if each else "–" for each in (score, high)]
            table.add_row(arm.label, str(number), *texts, f"{score.n if score else 0:,}")
    console = Console()
    console.print(table)
    for arm in found.arms:
        if (change := arm.estimate("change")) is not None and change.value is not None:
            told = interval(change.value, change.low, change.high)
            console.print(f"{arm.label}: from the first round to the last {told}.", markup=False, highlight=False)
