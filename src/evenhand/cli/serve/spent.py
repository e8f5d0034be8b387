"""`evenhand serve spent`: what the keys of the guard's server have spent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.groups import Command
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.server.config import ServeConfig, read_config
from evenhand.web.keys import KeyConfig

if TYPE_CHECKING:
    from evenhand.server.state.types import AllSpent, Spent
    from evenhand.web.keys import Per


@click.command(cls=Command)
@click.option(
    "--config", "file", required=True, type=click.Path(path_type=Path), help="The server's config, with its state."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object, and nothing else.")
def spent(file: Path, as_json: bool) -> None:
    """Show what every key has spent today, this month and in all (UTC); the server may be running.

    \b
    Examples:
      evenhand serve spent --config guard.yaml
      evenhand serve spent --config guard.yaml --json

    The config must name a state. Without one, only the running server knows: GET /admin/spent.
    """
    config = read_config(file)
    if not config.state.is_given:
        raise UsageError(
            "The config names no state, so only the running server knows what its keys have spent: GET /admin/spent. "
            "To keep it, add state: {file: FILE}."
        )
    is_new = config.state.file and not Path(config.state.file).expanduser().exists()
    found: AllSpent = {} if is_new else aio.run(_spent(config))
    if as_json:
        import orjson

        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        return
    now = time.time()
    names = [*config.keys, *(name for name in found if name not in config.keys)]
    rows = [("key", "today", "this month", "in all", "budget")]
    for name in names:
        amounts = found.get(name, {})
        periods = (_amount(amounts, "day", now), _amount(amounts, "month", now), _amount(amounts, "total", now))
        rows.append((name, *periods, _budget(config.keys.get(name))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


async def _spent(config: ServeConfig) -> AllSpent:
    from evenhand.server.state.state import load_state

    state = load_state(config.state)
    try:
        await state.start()
        if state.down:
            raise UsageError(f"The state cannot be reached: {state.down}.")
        return await state.spent()
    finally:
        await state.aclose()


def _amount(amounts: Mapping[Per, Spent], per: Per, now: float) -> str:
    from evenhand.server.state.types import Spent, period_of

    amount = amounts.get(per, Spent()).within(period_of(per, now))
    return f"{amount.tokens:,.0f} tokens" + (f", {amount.money:,.4f} in money" if amount.money else "")


def _budget(key: KeyConfig | None) -> str:
    if key is None:
        return "(not in the config)"
    if key.budget is None:
        return "none"
    parts = [f"{key.budget.tokens:,} tokens"] if key.budget.tokens else []
    parts += [f"{key.budget.money:g} in money"] if key.budget.money else []
    return ", ".join(parts) + (" in all" if key.budget.per == "total" else f" a {key.budget.per}")
