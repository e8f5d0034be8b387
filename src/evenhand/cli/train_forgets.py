"""`evenhand train forgets`: what a model lost by a training, or by any other change."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from evenhand.cli.groups import Command
from evenhand.cli.options import declared
from evenhand.cli.progress import LOST, shown_count
from evenhand.core import aio
from evenhand.core.files import write_json
from evenhand.core.format import plural
from evenhand.core.options import Request, argument, option
from evenhand.models.base import Model, load_model
from evenhand.show.table import Table, columns, interval_cell, measured, verdict
from evenhand.show.terminal import print_table
from evenhand.training.forgetting import Forgetting, forgets, probes


class ForgetsCommand(Request):
    """Two models to ask the same requests."""

    before: str = argument("The model as it was.", metavar="BEFORE")
    after: str = argument("The model after the training.", metavar="AFTER")
    size: int = option(200, "Requests of each area, where there are as many.", ge=10, le=5000, common=True)
    allow_loss: float = option(
        2.0, "Points that an area may lose; the length of answers may change by five times as many percent.", ge=0
    )
    seed: int = option(0, "Another seed draws other requests.")
    out: Path | None = option(None, "A JSON file for the table.", short="-o", metavar="FILE.json")


@click.command(cls=Command)
@declared(ForgetsCommand)
def forgets_command(request: ForgetsCommand) -> int:
    """Did anything get worse? Ask two models the same requests, whose answers are checked by code.

    Arithmetic, obedience to forms (N sentences, items, JSON, a language, words), trivia, questions about people whose
    answer is given, harmless requests that must not be declined, and the length of everyday answers. No data set and
    no judge is needed. The exit code is 5 if more than --allow-loss was lost, and not by chance alone.

    \b
    Examples:
      evenhand train forgets hf/models/base hf/models/fair/sft
      evenhand train forgets local/builtin local/builtin-fair --size 50
      evenhand train forgets openai/v1 openai/v2 --allow-loss 3 -o lost.json
    """
    asked = probes(request.seed, request.size)

    async def ask() -> Forgetting:
        async with load_model(request.before) as before, load_model(request.after) as after:
            return await _asked(before, after)

    async def _asked(before: Model, after: Model) -> Forgetting:
        with shown_count() as count:
            return await forgets(before, after, asked, limit=request.allow_loss, progress=count)

    found = aio.run(ask())
    click.echo(found.sentence)
    print_table(Console(), forgetting_table(found))
    if found.failed:
        click.echo(f"{plural(found.failed, 'request')} without a reply of both models; they count nowhere.")
    if request.out is not None:
        rows = [
            {"area": each.area, "n": each.n, "before": each.before, "after": each.after, "verdict": each.verdict}
            | {"change": each.difference.estimate, "low": each.difference.low, "high": each.difference.high}
            for each in found.changes
        ]
        about = {"before": found.before, "after": found.after, "seed": request.seed, "allow_loss": request.allow_loss}
        write_json(request.out, {**about, "failed": found.failed, "areas": rows})
    return LOST if found.lost else 0


def forgetting_table(found: Forgetting) -> Table:
    """Every area before and after, the change with its interval, and a verdict."""
    rows = [
        [
            f"{each.area} ({each.unit})",
            measured(each.before, n=each.n),
            measured(each.after),
            interval_cell(each.difference, sign=True),
            verdict(each.verdict, False if each.is_lost else None if each.verdict.startswith("cannot") else True),
        ]
        for each in found.changes
    ]
    return Table("What got worse", columns("area", "before", "after", "change [95 %]", "verdict"), rows)
