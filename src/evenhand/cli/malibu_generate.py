"""`evenhand judges malibu generate`: further scenarios, written by any model, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from evenhand.cli.ending import STOPPED
from evenhand.cli.given_options import plan_options_without
from evenhand.cli.groups import Command
from evenhand.cli.progress import shown_count
from evenhand.cli.request import check_prices, read_models, read_settings
from evenhand.cli.run import usage_sentence
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted
from evenhand.core.prompts import read_templates
from evenhand.made.scenarios import ScenarioSet, ScenarioTask
from evenhand.runs.plan import ModelPlan

_OTHERS = (
    *("config", "benchmark", "settings", "data", "methods", "scorers", "limit", "orders", "reading"),
    *("judge_model", "temperature", "max_tokens", "judge_samples", "judge_pool"),
    *("resume", "retry_failed", "workers", "otel", "log_to"),
)
"""Options of a plan that mean nothing here."""
_OWN = ("models", "seeds", "out")
"""Options of a plan that mean something narrower here."""
_SHOWN_REASONS = 5


@click.command("generate", cls=Command)
@click.option("--model", "-m", "spec", required=True, metavar="SPEC", help="The model that writes.")
@click.option("--bases", type=click.IntRange(1), default=5, show_default=True, help="Base scenarios: professions.")
@click.option("--derived", type=click.IntRange(1, 50), default=10, show_default=True, help="Scenarios of each.")
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="A new folder.")
@click.option("--identities", metavar="FILE", help="Identities of your own, whose tags no scenario may have.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives other scenarios.")
@plan_options_without(*_OTHERS, *_OWN)
def generate(out: Path, identities: str | None, dry_run: bool, **given: Any) -> int:
    """Write further scenarios with a model, as data for evenhand malibu.

    Each has two responses of equal content. What the model writes is checked: two responses of similar length, and no
    word that tells an identity. A scenario with a fault is asked for once more and then left out. The folder says how
    it was made, and is refused once a file in it was changed.

    \b
    Examples:
      evenhand judges malibu generate --model openai/NAME --bases 5 --out scenarios --dry-run
      evenhand judges malibu generate --model openai/NAME --bases 5 --out scenarios
      evenhand judges malibu --model openai/NAME --data scenarios
    """
    with read_templates(given["templates"]).used():
        return _generate(out, identities, dry_run, given)


def _generate(out: Path, identities: str | None, dry_run: bool, given: Mapping[str, Any]) -> int:
    task = ScenarioTask(given["bases"], given["derived"], given["seed"], identities)
    settings, model = read_settings(given), _model_plan(given)
    check_prices(given, [model])
    made = ScenarioSet(task, out)
    if dry_run:
        used = aio.run(task.forecast(model, settings.prices))
        hint = " (pass --price SPEC=INPUT/OUTPUT)" if used.cost is None else ""
        click.echo(f"{usage_sentence(used)}{hint}.")
        click.echo("Nothing was called. What has a fault is asked for once more: that comes on top.")
        return 0
    try:
        with shown_count() as count:
            aio.run(made.write(model, settings, count))
    except BudgetExhausted as error:
        _tell(made, out)
        click.echo(
            f"Stopped: {error}. The same command with a new --out and a larger --budget begins with what is cached."
        )
        return STOPPED
    except BaseException:
        if made.bases:
            click.echo(f"evenhand: {len(made.bases):,} base scenarios were finished and are in {out}.", err=True)
        raise
    _tell(made, out)
    if not made.bases:
        return 1
    click.echo(f"Next: evenhand judges malibu --model MODEL --data {out}")
    return 0


def _model_plan(given: Mapping[str, Any]) -> ModelPlan:
    """The model and how to reach it, checked like one of a plan."""
    return read_models({**given, "models": (given["spec"],)})[0]["base"]


def _tell(made: ScenarioSet, out: Path) -> None:
    bases = f"{len(made.bases):,} of {made.task.bases:,} base scenarios with {made.scenarios:,} scenarios"
    click.echo(f"{out}: {bases}; {made.dropped.total():,} pieces were left out.")
    for reason, count in made.dropped.most_common(_SHOWN_REASONS):
        click.echo(f"  {count:,} × {reason}")
