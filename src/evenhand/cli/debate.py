"""`evenhand train debate` and `train pairs`: debates that a referee scores, and training data that is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import click

from evenhand import api
from evenhand.cli.options import command
from evenhand.cli.progress import exit_code, resumable, shown_workflow, stopped_by_budget
from evenhand.cli.request import PlanCommand, tell
from evenhand.cli.run import print_forecast, usage_sentence
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.files import scratch
from evenhand.core.format import interval, number
from evenhand.core.options import argument, option
from evenhand.core.progress import Progress
from evenhand.runs.parts import Settings
from evenhand.runs.request import PlannedRun, check_resume
from evenhand.studies.results import Estimate
from evenhand.studies.study import study
from evenhand.training.debates import DebateRequest, TopicsFile, debating_model, run_debate
from evenhand.training.pairs import PairOptions
from evenhand.training.pairs.folder import DROPPED_PAIRS, DROPPED_STATEMENTS, reasons


class DebateCommand(DebateRequest, PlanCommand):  # pyright: ignore[reportIncompatibleVariableOverride] - narrower here
    """Debates to run."""

    command: ClassVar[str] = "train debate"
    fixed: ClassVar[Sequence[str]] = (*DebateRequest.fixed, "log_to")

    @property
    def every_model(self) -> tuple[str, ...]:
        """The models, with those of the two roles that have options of their own."""
        roles = (("teacher", self.teacher), ("referee", self.referee))
        return (*self.models, *(f"{role}={spec}" for role, spec in roles if spec))

    def run_of(self, topics: TopicsFile | None) -> PlannedRun:
        how: dict[str, Any] = {
            "file": self.config,
            "allow_call": self.allow_call,
            "config": read_config(),
            "tell": tell,
        }
        return self.planned_debates(self.every_model, topics, **how)


def go_on(_request: DebateCommand, run: PlannedRun) -> int:
    """Debate what is missing, whose topics are there already; the exit code."""
    with resumable(run.out), shown_workflow(run.out, run.settings.budget) as listener:
        progress = aio.run(run_debate(run.plan, run.out, run.settings, listener))
    assert progress is not None  # only missing topics stop debates from beginning
    return end_debate(run.out, run.settings, progress)


@command(DebateCommand, goes_on=go_on)
def debate(request: DebateCommand) -> int:
    """Have roles debate topics over several rounds while a referee scores their bias.

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
    topics = request.missing_topics()
    run = request.run_of(topics)
    if request.dry_run:
        return _forecast(request, run, topics)
    if request.resume:
        check_resume(run.out)
    settings = replace(run.settings, origin=request.record())
    hint = "The same command with --reuse-answers and a larger --budget begins with what was answered."
    with stopped_by_budget(hint), resumable(run.out), shown_workflow(run.out, settings.budget) as listener:
        progress = aio.run(run_debate(run.plan, run.out, settings, listener, topics))
    if progress is None:
        there, path = topics.written(), topics.path  # pyright: ignore[reportOptionalMemberAccess]
        click.echo(f"The model has no further ones. To debate the {there:,} there are: --data {path}")
        return 1
    return end_debate(run.out, settings, progress)


def end_debate(out: Path, settings: Settings, progress: Progress) -> int:
    """The scores of a run of debates, and what comes next; the exit code."""
    code = exit_code([out], settings, stopped=progress.stopped is not None)
    if progress.statuses["graded"]:
        _print_scores(out)
        click.echo(f"Next: evenhand train pairs {out}")
    elif progress.done:
        click.echo(f"No statement has a score, so there is nothing to learn from; see evenhand run show {out}")
    return code


def _forecast(request: DebateCommand, run: PlannedRun, topics: TopicsFile | None) -> int:
    """What the debates would take, and before them the topics that have to be written."""
    if topics is None or topics.is_written():
        if topics is not None:
            click.echo(f"{topics.path}: the topics were written before.")
        print_forecast(run)
        return 0
    with scratch() as folder:
        draft = replace(topics, path=folder / "topics.yaml")
        with run.plan.prompts().used():
            used = aio.run(draft.pretend(debating_model(run.plan), run.settings.prices))
        click.echo(f"Topics first: {usage_sentence(used)}; more where topics come twice.")
        print_forecast(request.run_of(draft))
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
        for place, step in enumerate(steps or [arm], 1):
            score, high = step.estimate("last_score"), step.estimate("high")
            values = [replace(estimate_cell(each), notes=()) for each in (score, high)]
            rows.append([arm.label, str(place), *values, count(score.n if score else 0)])
    console = Console()
    print_table(Table("", columns("debate", "round", "bias score (0 to 10)", "above 3, %", "topics"), rows))
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


_BARS = " ▁▂▃▄▅▆▇█"
_UNEQUAL = 0.6
"""Warn if one side is the shorter one in more than this share of the pairs."""


class PairsCommand(PairOptions):
    """Debates to make pairs of."""

    runs: tuple[Path, ...] = argument("Runs of debates.", metavar="RUN…")
    out: Path | None = option(None, "A new folder (default pairs in the first RUN).", short="-o", common=True)
    data: Path | None = option(None, "The folder of BBQ, for the leak check.", metavar="FOLDER")


@command(PairsCommand)
def pairs(request: PairsCommand) -> None:
    """Make preference pairs and low-bias answers from the debates in RUN…, split by topic.

    \b
    It writes JSON Lines in the conversational format that `datasets` and TRL read:
      pairs.train.jsonl, pairs.test.jsonl    prompt, chosen (low bias), rejected (high bias)
      sft.train.jsonl, sft.test.jsonl        messages: the question and a low-bias answer
      pairs.json, README.md                  counts, scores by round, leak check, provenance; a card to read

    \b
    Examples:
      evenhand train pairs runs/debate-age
      evenhand train pairs runs/debate-* --out pairs/all --per-topic 4
      evenhand train pairs runs/debate-age --threshold median --margin 0.5 --length-ratio 1.2
    """
    out = request.out or request.runs[0] / "pairs"
    about = api.pairs(*request.runs, out=out, data=request.data, **request.given(PairOptions))
    _print_rounds(about["rounds"], about["threshold"])
    _print_counts(about)
    if about["leaks"]["unchecked"]:
        click.echo(about["leaks"]["unchecked"])
    click.echo(f"Written: {out}. Next: evenhand train recipe {out} --model MODEL --out FOLDER")


def _print_rounds(rounds: Sequence[Mapping[str, Any]], threshold: float) -> None:
    click.echo(f"Bias scores by round (0–10, higher is worse; high is above {number(threshold)}):")
    click.echo(f"{'round':>5} {'n':>7}  {'mean [95 %]':<18} {'high':>6}  0         10")
    for row in rounds:
        mean = interval(row["mean"], row["low"], row["high"], 2)
        share = f"{number(100 * row['high_share'], 0)} %"
        click.echo(f"{row['round']:>5} {row['n']:>7,}  {mean:<18} {share:>6}  {bars(row['bins'])}")


def bars(bins: Sequence[int]) -> str:
    """Draw a histogram on one line; a bin that is not empty gets at least the smallest bar."""
    most = max(bins)
    return "".join(_BARS[0 if not each else max(1, round(each / most * (len(_BARS) - 1)))] for each in bins)


def _print_counts(about: Mapping[str, Any]) -> None:
    counts, sides = about["counts"], about["pairs"]
    click.echo(
        f"{counts['pairs_train']:,} pairs to train on and {counts['pairs_test']:,} to test, of "
        f"{counts['topics_with_pairs']:,} of {counts['topics']:,} topics; {counts['sft_train']:,} and "
        f"{counts['sft_test']:,} low-bias answers."
    )
    click.echo(
        f"Scores {number(sides['chosen_score'])} against {number(sides['rejected_score'])}, "
        f"words {number(sides['chosen_words'], 0)} against {number(sides['rejected_words'], 0)}."
    )
    click.echo(
        f"The chosen answer is the shorter one in {number(100 * sides['shorter_chosen'], 0)} % of the pairs; rounds "
        f"{number(sides['chosen_round'])} against {number(sides['rejected_round'])}."
    )
    if not 1 - _UNEQUAL <= sides["shorter_chosen"] <= _UNEQUAL:
        kind = "shorter" if sides["shorter_chosen"] > 0.5 else "longer"
        click.echo(f"! A reward model may only learn that better answers are {kind}; --length-ratio 1.5 prevents that.")
    without = [
        f"{counts[name]:,} {why}"
        for name, why in (
            ("topics_low_only", "had low bias only"),
            ("topics_high_only", "had high bias only"),
            ("topics_without_fitting", "had no pair that fits"),
        )
        if counts[name]
    ]
    if without:
        click.echo(f"Topics without pairs: {', '.join(without)}.")
    for what, why in (("Statements dropped", DROPPED_STATEMENTS), ("Possible pairs left out", DROPPED_PAIRS)):
        if found := reasons(counts, why):
            click.echo(f"{what}: {', '.join(found)}.")
    if counts["persona_texts"]:
        click.echo(f"Persona phrases were removed from {counts['persona_texts']:,} statements.")
