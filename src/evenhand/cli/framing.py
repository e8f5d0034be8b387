"""`evenhand judges framing`: how many biases a model admits when it is told who wrote a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import click

from evenhand.cli.groups import Command
from evenhand.cli.options import declared
from evenhand.cli.report import print_stored, report_path
from evenhand.cli.request import PlanCommand
from evenhand.cli.run import begin, execute
from evenhand.core.errors import UsageError
from evenhand.core.options import argument, option
from evenhand.made.from_runs import write_own_texts
from evenhand.runs.request import PlannedRun, read_out

BENCHMARK = METHOD = "framing"


class FramingCommand(PlanCommand):
    """Texts to frame."""

    command: ClassVar[str] = "judges framing"
    fixed: ClassVar[Sequence[str]] = (
        *("benchmark", "benchmark_options", "scorers", "language", "prompts", "attributes", "repeats"),
    )

    runs: tuple[Path, ...] = argument("Runs made before.", default=())
    limit: int | None = option(
        None, "This many texts, each under three framings (default: all 60).", short="-n", common=True
    )
    data: str | Path | None = option(
        None, "Texts of your own, as YAML; see docs/measure/framing.md.", metavar="FILE", common=True
    )
    own: Path | None = option(
        None,
        "The texts that the model wrote itself: its answers in a rated run of opinions.",
        metavar="RUN",
        common=True,
    )


def end_framing(request: FramingCommand, run: PlannedRun) -> int:
    """Run what is missing and write the report; the exit code."""
    del request
    return execute(run, report=True, benchmark=BENCHMARK)


@click.command(cls=Command)
@declared(FramingCommand, goes_on=end_framing)
def framing(request: FramingCommand) -> int:
    """Show a model the same texts as its own, as a language model's and as a competitor's: RLDF's Figure 1.

    Two thirds of the texts hold a stereotype. It is asked whether each is biased, and how much; the method can be
    another one for multiple choice, too. Or name RUNS made before.

    \b
    Examples:
      evenhand judges framing --model local/builtin --limit 15
      evenhand judges framing -m openai/gpt-4o-mini --method framing --method fair_prompt --dry-run
      evenhand judges framing -m openai/NAME --own runs/opinions --method framing:names=true
      evenhand judges framing runs/before runs/after
    """
    if request.runs:
        if request.models or request.config:
            raise UsageError("Give either runs made before or a plan to run, not both.")
        out, target = read_out(request.out)
        return print_stored(request.runs, target or report_path(out or request.runs[0]), benchmark=BENCHMARK)
    if request.own is not None:
        if request.data:
            raise UsageError("--own and --data both name texts; remove one.")
        request = request.changed(data=str(write_own_texts(request.own)))
    return begin(request, request.run_asked((METHOD,), {"benchmark": BENCHMARK}), end_framing)
