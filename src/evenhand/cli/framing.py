"""`evenhand framing`: how many biases a model admits when it is told who wrote a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evenhand.cli.groups import Command
from evenhand.cli.options import plan_options_without
from evenhand.cli.output import output_options
from evenhand.cli.report import print_stored, report_path
from evenhand.cli.request import read_out, read_request
from evenhand.cli.run import execute
from evenhand.core.errors import UsageError
from evenhand.made.from_runs import write_own_texts

BENCHMARK = METHOD = "framing"
_FIXED = ("benchmark", "settings", "scorers")
"""Options of a plan that the command decides."""
_OWN = ("limit", "data")
"""Options of a plan that mean something narrower here."""


@click.command(cls=Command)
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--limit", "-n", type=int, help="This many texts, each under three framings (default: all 60).")
@click.option("--data", metavar="FILE", help="Texts of your own, as YAML; see docs/measure/framing.md.")
@click.option(
    "--own",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="The texts that the model wrote itself: its answers in a rated run of opinions.",
)
@plan_options_without(*_FIXED, *_OWN)
@output_options
def framing(runs: tuple[Path, ...], own: Path | None, **given: Any) -> int:
    """Show a model the same texts as its own, as a language model's and as a competitor's: RLDF's Figure 1.

    Two thirds of the texts hold a stereotype. It is asked whether each is biased, and how much; the method can be
    another one for multiple choice, too. Or name RUNS made before.

    \b
    Examples:
      evenhand framing --model local/builtin --limit 15
      evenhand framing -M openai/gpt-4o-mini -m framing -m fair_prompt --dry-run
      evenhand framing -M openai/NAME --own runs/opinions -m framing:names=true
      evenhand framing runs/before runs/after
    """
    if runs:
        if given["models"] or given["config"]:
            raise UsageError("Give either runs made before or a plan to run, not both.")
        out, target = read_out(given["out"])
        return print_stored(runs, target or report_path(out or runs[0]), benchmark=BENCHMARK)
    if own is not None:
        if given["data"]:
            raise UsageError("--own and --data both name texts; remove one.")
        given["data"] = str(write_own_texts(own))
    fixed: dict[str, Any] = {"benchmark": BENCHMARK, "settings": (), "scorers": ()}
    request = read_request({**given, **fixed}, default_methods=(METHOD,))
    return execute(request, report=True, benchmark=BENCHMARK)
