"""`evenhand report`, and the study with its tables and report, which audit and compare end with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.cli.groups import Command
from evenhand.errors import PlanError
from evenhand.studies.results import StudyResult
from evenhand.studies.show import shown_samples
from evenhand.studies.study import study


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="HTML file (default report.html in the first RUN).")
@click.option("--baseline", help="The arm that the others are compared with (default: the first `default`).")
@click.option(
    "--correction",
    type=click.Choice(["holm", "bh"]),
    default="holm",
    show_default=True,
    help="Of p-values for multiple tests: Holm, or Benjamini-Hochberg.",
)
@click.option(
    "--samples", type=click.IntRange(0), default=300, show_default=True, help="Most samples to show in the report."
)
@click.option(
    "--scorer", "-s", "scorers", multiple=True, metavar="SPEC",
    help="Whose scores count, instead of those of the plan; evenhand rescore makes them.",
)  # fmt: skip
@click.option("--iterations", is_flag=True, help="Also compare the answers as they stood after each iteration.")
def report(runs: tuple[Path, ...], out: Path | None, samples: int, **how: Any) -> None:
    """Study stored RUNS again and write the report; no model is called.

    \b
    Examples:
      evenhand report runs/first
      evenhand report runs/first --scorer builtin --out by-builtin.html
    """
    print_study(*study_and_report(list(runs), out or report_path(runs[0]), samples=samples, **how))


def report_path(directory: Path) -> Path:
    return directory / "report.html"


def study_and_report(
    runs: Sequence[Path],
    target: Path,
    *,
    samples: int = 300,
    scorers: Sequence[str] = (),
    benchmark: str | None = None,
    **how: Any,
) -> tuple[StudyResult, Path]:
    """Compute the study, `how` its options say, and write its report to `target`; of one benchmark alone, if named."""
    from evenhand.reports.html import write_report

    result = study(runs, scorers=scorers, **how)
    if benchmark not in (None, result.benchmark):
        raise PlanError(f"{runs[0]} is a run of {result.benchmark}, not of {benchmark}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_report(result, shown_samples(runs, samples, scorers=scorers), target)
    return result, target


def print_study(result: StudyResult, target: Path) -> None:
    """The tables, the conclusions and the warnings on standard output."""
    from rich.console import Console

    from evenhand.reports.sections.base import sections_of
    from evenhand.reports.tables import arm_table, effect_table
    from evenhand.reports.tables.fitting import print_table

    console = Console()
    print_table(console, arm_table(result))
    if result.effects:
        print_table(console, effect_table(result))
    sections = sections_of(result)
    for table in (table for section in sections for table in section.tables(result)):
        print_table(console, table)
    for sentence in (*result.verdicts, *(each for section in sections for each in section.sentences(result))):
        console.print(f"• {sentence}", markup=False, highlight=False)
    for warning in result.warnings:
        console.print(f"! {warning}", markup=False, highlight=False)
    click.echo(f"Report: {target}")
