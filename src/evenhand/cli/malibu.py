"""`evenhand judges malibu`: audit judges, alone and in panels, and make further scenarios to audit them with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command, declared
from evenhand.cli.progress import shown_count, stopped_by_budget
from evenhand.cli.request import DryRunOption, PlanCommand
from evenhand.cli.run import begin, end_study, usage_sentence
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.fields import ComparisonFields
from evenhand.core.options import Several, option
from evenhand.core.prompts import read_templates
from evenhand.core.specs import scalar
from evenhand.made.scenarios import ScenarioSet, ScenarioTask
from evenhand.runs.request import ModelsRequest

_SHOWN_REASONS = 5


class GenerateCommand(DryRunOption, ModelsRequest):
    fixed: ClassVar[Sequence[str]] = ("workers",)

    spec: str = option(..., "The model that writes.", flag="--model", short="-m", metavar="SPEC")
    bases: int = option(5, "Base scenarios: professions.", ge=1)
    derived: int = option(10, "Scenarios of each.", ge=1, le=50)
    out: Path = option(..., "A new folder.", short="-o", metavar="FOLDER")
    identities: str | None = option(None, "Identities of your own, whose tags no scenario may have.", metavar="FILE")
    seed: int = option(0, "Another one gives other scenarios.")
    templates: str | None = option(
        None, "Prompt files of your own; evenhand list methods NAME --prompts DIR writes some.", metavar="DIR"
    )


@command(GenerateCommand, None, "generate")
def generate(request: GenerateCommand) -> int:
    """Write further scenarios with a model, as data for evenhand judges malibu.

    Each has two responses of equal content. What the model writes is checked: two responses of similar length, and no
    word that tells an identity. A scenario with a fault is asked for once more and then left out. The folder says how
    it was made, and is refused once a file in it was changed.

    \b
    Examples:
      evenhand judges malibu generate --model openai/NAME --bases 5 --out scenarios --dry-run
      evenhand judges malibu generate --model openai/NAME --bases 5 --out scenarios
      evenhand judges malibu --model openai/NAME --data scenarios
    """
    with read_templates(request.templates).used():
        return _generate(request)


def _generate(request: GenerateCommand) -> int:
    task = ScenarioTask(request.bases, request.derived, request.seed, request.identities)
    settings, model = request.settings_for(read_config()), request.one_model(request.spec)
    out = request.out
    made = ScenarioSet(task, out)
    if request.dry_run:
        used = aio.run(task.forecast(model, settings.prices))
        hint = " (pass --price SPEC=INPUT/OUTPUT)" if used.cost is None else ""
        click.echo(f"{usage_sentence(used)}{hint}.")
        click.echo("Nothing was called. What has a fault is asked for once more: that comes on top.")
        return 0
    hint = "The same command with --reuse-answers, a new --out and a larger --budget begins with what was answered."
    try:
        with stopped_by_budget(hint, lambda: _tell(made, out)), shown_count() as count:
            aio.run(made.write(model, settings, count))
    except click.exceptions.Exit:
        raise
    except BaseException:
        if made.bases:
            click.echo(f"evenhand: {len(made.bases):,} base scenarios were finished and are in {out}.", err=True)
        raise
    _tell(made, out)
    if not made.bases:
        return 1
    click.echo(f"Next: evenhand judges malibu --model MODEL --data {out}")
    return 0


def _tell(made: ScenarioSet, out: Path) -> None:
    bases = f"{len(made.bases):,} of {made.task.bases:,} base scenarios with {made.scenarios:,} scenarios"
    click.echo(f"{out}: {bases}; {made.dropped.total():,} pieces were left out.")
    for reason, count in made.dropped.most_common(_SHOWN_REASONS):
        click.echo(f"  {count:,} × {reason}")


BENCHMARK, METHODS = "malibu", ("judge", "panel", "fair_panel")
_REFERENCE = "panel"
"""What the other methods are compared with: one judge is a panel without its discussion, and so on."""


class MalibuCommand(ComparisonFields, PlanCommand):
    """Judges to audit."""

    command: ClassVar[str] = "judges malibu"
    fixed: ClassVar[Sequence[str]] = (
        *("benchmark", "benchmark_options", "language", "prompts", "attributes", "repeats"),
        *("scorers", "orders", "reading", "judge", "iterations"),
    )

    benchmark: str = BENCHMARK
    methods: Several = option(
        (),
        "judge, panel, fair_panel or blind_panel; repeat to compare (default: the first three).",
        flag="--method",
        metavar="NAME[:KEY=VALUE,…]",
        common=True,
    )
    phase: Literal["1", "2", "both"] | None = option(None, "One candidate, a pair, or both (default).")
    texts: Literal["same", "two"] | None = option(None, "Pairs with one text twice (default), or two of equal content.")
    form: Literal["sentence", "tag"] | None = option(None, "The author in a sentence (default), or as a tag.")
    metrics: str | None = option(
        None,
        "What is scored, with commas, or a YAML file (default: creativity,accuracy,efficiency,reliability).",
        metavar="NAMES",
    )
    no_winner: bool = option(False, "Judges of a pair name no winner; scores decide.")
    pairs: int | None = option(None, "Pairs of identities compared in each scenario, drawn (default: all 13).", ge=1)
    limit: int | None = option(
        None, "This many scenarios, spread over the professions (default: all 200).", short="-n", common=True
    )
    data: str | Path | None = option(None, "Scenarios of your own, e.g. generated ones.", metavar="FOLDER", common=True)
    identities: str | None = option(None, "Identities of your own, as YAML.", metavar="FILE")
    baseline: str | None = option(None, "The method or arm that the others are compared with (default panel).")

    def scenario_options(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in ("phase", "texts", "form", "metrics", "pairs", "identities")}
        found = {name: scalar(str(value)) for name, value in given.items() if value is not None}
        return {**found, **({"winner": False} if self.no_winner else {})}


@click.group(cls=Group, invoke_without_command=True)
@declared(MalibuCommand, goes_on=end_study)
def malibu(request: MalibuCommand) -> int:
    """Audit judges for bias by the author's identity: MALIBU.

    Judges score responses that are attributed to authors of different identities. The text is the same for all, so a
    difference of scores is bias. `judge` is one judge, `panel` four with personas who discuss; `fair_panel` is told
    that the author is no reason for a score, `blind_panel` is not told the author.

    \b
    Examples:
      evenhand judges malibu --model local/builtin --limit 20 --dry-run        (calls, tokens and money)
      evenhand judges malibu --model local/builtin --limit 20
      evenhand judges malibu -m openai/gpt-4o-mini --method panel --method blind_panel --budget '$20'
      evenhand judges malibu -m openai/NAME --method panel:judges=3,rounds=1 --method panel:topology=star --phase 1
      evenhand judges malibu -m openai/NAME --method judge --metrics creativity,efficiency,quality --no-winner
      evenhand judges malibu -m call/my_team:judge --method judge       (a team of your own: any Python function)
      evenhand judges malibu generate --model openai/NAME --bases 5 --out scenarios
      evenhand judges malibu --model openai/NAME --data scenarios
    """
    run = request.run_asked(METHODS, {"benchmark": BENCHMARK, "benchmark_options": request.scenario_options()})
    if request.baseline is None and any(each.name == _REFERENCE for each in run.plan.methods):
        request = request.changed(baseline=_REFERENCE)
    return begin(request, run, end_study)


malibu.add_command(generate)
