"""`evenhand run rescore`: another scorer's opinion of the answers that a run has stored."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand import api
from evenhand.cli.ending import FAILED, STOPPED
from evenhand.cli.given_options import allow_call_option, call_options
from evenhand.cli.groups import Command
from evenhand.cli.progress import shown_count
from evenhand.cli.request import read_settings
from evenhand.core.errors import BudgetExhausted
from evenhand.runs.rescore import Rescored
from evenhand.runs.scores import means
from evenhand.runs.stored import open_sources
from evenhand.studies.agreement import agreements

_SHOWN_REASONS = 3


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--scorer", "-s", "specs", multiple=True, required=True, metavar="SPEC",
    help="NAME or NAME:ARGUMENT, see evenhand list scorers; repeat for several.",
)  # fmt: skip
@click.option("--templates", metavar="DIR", help="Prompt files of your own, for scorers that ask a model.")
@call_options
@allow_call_option
def rescore(run: Path, specs: tuple[str, ...], templates: str | None, **given: Any) -> int:
    """Score the stored answers of RUN with another scorer; the models that answered are not asked again.

    \b
    Examples:
      evenhand run rescore runs/first --scorer builtin
      evenhand run rescore runs/first --scorer judge:openai/gpt-4o-mini --budget '$2'
      evenhand compare runs/first --scorer builtin            what the study says by that scorer

    Final answers and those after each iteration are scored, in all arms. What has a score by that scorer is left
    alone, so the same command goes on where it was stopped, and tries again what could not be scored. A budget counts
    the calls of this command alone.
    """
    settings = replace(read_settings(given), allow_call=given["allow_call"])
    try:
        with shown_count() as count:
            results = api.rescore(run, specs, settings=settings, progress=count, templates=templates)
    except BudgetExhausted as error:
        click.echo(f"Stopped: {error}. What was scored is kept; go on with the same command and a larger --budget.")
        return STOPPED
    _print(run, results)
    tried = [each for each in results if each.scored or each.reasons]
    return FAILED if tried and not any(each.scored for each in tried) else 0


def _print(run: Path, results: Sequence[Rescored]) -> None:
    """What was done, the means by the new scorers, and how far they agree with the others."""
    from rich.console import Console

    from evenhand.show.tables import safe_text
    from evenhand.show.tables.fitting import print_table
    from evenhand.show.tables.scores import agreement_table, mean_table

    console = Console()
    with open_sources([run]) as (_, sources):
        store = sources[0].store
        arms = {source.arm.number: source.label for source in sources}
        for each in results:
            click.echo(f"{each.scorer}: {each.scored:,} new scores, {each.reasons.total():,} texts without one")
            for reason, count in each.reasons.most_common(_SHOWN_REASONS):
                console.print(safe_text(f"  {count:,} × {reason}"))
            found = means(store, each.scorer)
            if any(arm.graded for arm in found.values()):
                print_table(console, mean_table(each.scorer, each.attributes, arms, found))
        new = {each.scorer for each in results}
        for agreement in agreements([store]):
            if new & {agreement.first, agreement.second}:
                print_table(console, agreement_table(agreement))
    chosen = [part for each in results for part in ("--scorer", each.scorer.rpartition("@")[0])]
    click.echo(f"Next: {shlex.join(['evenhand', 'compare', str(run), *chosen])}")
