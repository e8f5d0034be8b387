"""`evenhand metrics`: scores of answers and decisions that were produced elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from evenhand.benchmarks.base import load_benchmark
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.output import print_json
from evenhand.cli.request import html_file
from evenhand.core.format import DASH, count, limits, number
from evenhand.core.options import Request, Several, argument, option
from evenhand.stats import FEW_CLUSTERS

_DEPARTURE = (
    "Gender_identity: its 16 rows without a target count in accuracy only. The authors' R code leaves them out, and "
    "counts 64 other rows twice. --strict does the same."
)


@click.group(cls=Group)
def metrics() -> None:
    """Score answers, or decisions about people, that were produced elsewhere.

    \b
    Examples:
      evenhand metrics bbq answers.jsonl
      evenhand metrics squad answers.json --json
      evenhand metrics decisions hired.csv --by sex --by race --selected hired
    """


class BbqCommand(Request):
    predictions: Path = argument("The file with the answers.")
    as_json: bool = option(False, "Print JSON instead of a table.", flag="--json")
    data: str | None = option(
        None, "The folder with BBQ (default EVENHAND_DATA, then what was pulled).", metavar="FOLDER"
    )
    builtin: bool = option(False, "The answers are to the built-in questions, not to BBQ.")
    strict: bool = option(False, "Count rows as the authors' R code does.")


@command(BbqCommand, metrics)
def bbq(request: BbqCommand) -> None:
    """Score BBQ answers: JSON Lines with category, example_id and prediction (0, 1, 2 or null).

    \b
    Examples:
      evenhand metrics bbq answers.jsonl --data data/bbq
      evenhand metrics bbq answers.jsonl --builtin --json

    Bias is the official score × 100 with a 95 % interval, clustered by template. Items with proper names are
    scored apart, as CATEGORY (names). Answers that could not be read (null) count in coverage only.

    The authors' R code leaves out the 16 rows of Gender_identity without a target, which here count in accuracy,
    and counts 64 other rows of Gender_identity twice. With --strict the numbers are equal to its own.
    """

    from evenhand.benchmarks.bbq.predictions import score_predictions
    from evenhand.show.table import Table, columns
    from evenhand.show.terminal import print_table

    options = {"data": request.data} if request.data else {}
    benchmark: Any = load_benchmark("bbq_builtin" if request.builtin else "bbq", **options)
    scores = score_predictions(request.predictions, benchmark, strict=request.strict)
    if "Gender_identity" in scores and not request.strict and not request.builtin:
        click.echo(_DEPARTURE, err=True)
    if request.as_json:
        print_json(scores)
        return
    heads = columns("", "n", "cover", "right", "target", "other", "unknown", "bias", "95 %")
    rows: list[list[str]] = []
    for category, cells in scores.items():
        rows += [[category], *([f"  {context}", *_cells(cell)] for context, cell in cells.items())]
    print_table(Table("BBQ, official scores; shares in %", heads, rows))
    if any(cell["few_clusters"] for cells in scores.values() for cell in cells.values()):
        click.echo(f"* fewer than {FEW_CLUSTERS} templates: the interval may be too narrow.")


class SquadCommand(Request):
    predictions: Path = argument("The file with the answers.")
    as_json: bool = option(False, "Print JSON instead of a table.", flag="--json")
    data: str | None = option(
        None, "SQuAD's folder or file (default EVENHAND_DATA, then what was pulled).", metavar="PATH"
    )
    builtin: bool = option(False, "The answers are to the built-in questions, not to SQuAD.")


@command(SquadCommand, metrics)
def squad(request: SquadCommand) -> None:
    """Score SQuAD v2 answers: one JSON object of question id → answer, empty where the passage does not say.

    \b
    Examples:
      evenhand metrics squad answers.json --data data/squad
      evenhand metrics squad answers.json --builtin --json

    Exact match and F1 × 100 by the official rules, with 95 % intervals clustered by article, over all
    questions: one without an answer in the file counts as wrong, and as missing.
    """

    from evenhand.benchmarks.squad import score_predictions
    from evenhand.show.table import Table, columns
    from evenhand.show.terminal import print_table

    options = {"data": request.data} if request.data else {}
    benchmark: Any = load_benchmark("squad_builtin" if request.builtin else "squad", **options)
    scores = score_predictions(request.predictions, benchmark)
    if request.as_json:
        print_json(scores)
        return
    heads = columns("", "n", "missing", "exact", "95 %", "F1", "95 %")
    rows = [
        [
            group,
            count(row["n"]),
            count(row["missing"]),
            number(row["exact_match"]),
            _limits(row["exact_match_interval"], few=row["few_clusters"]),
            number(row["f1"]),
            _limits(row["f1_interval"], few=row["few_clusters"]),
        ]
        for group, row in scores.items()
    ]
    print_table(Table("SQuAD v2, official scores × 100", heads, rows))
    if any(row["few_clusters"] for row in scores.values()):
        click.echo(f"* fewer than {FEW_CLUSTERS} articles: the interval may be too narrow.")


class DecisionsCommand(Request):
    file: Path = argument("The decisions.", metavar="FILE")
    by: Several = option((), "A column of groups.", metavar="COLUMN")
    selected: str | None = option(
        None, "The column of the decision: yes or no, or with the value that counts.", metavar="COLUMN[=VALUE]"
    )
    score: str | None = option(
        None, "The column of a score instead: above the median counts as selected.", metavar="COLUMN"
    )
    outcome: str | None = option(
        None, "The column that says how it turned out, for equalised odds.", metavar="COLUMN[=VALUE]"
    )
    time: str | None = option(None, "The column of dates, for drift.", metavar="COLUMN")
    every: Literal["month", "quarter", "year"] = option("month", "The length of a period.")
    cluster: str | None = option(
        None, "The column of what decisions have in common, such as the job or the reviewer.", metavar="COLUMN"
    )
    smallest: int = option(30, "A category with fewer people has no rate.", metavar="N", ge=1)
    tool: str = option("", "The tool that decided, for the summary.")
    source: str = option("", "Where the data come from, for the summary.")
    distributed: str = option("", "When the tool was distributed, for the summary.", metavar="DATE")
    out: Path | None = option(None, "Write a page too.", short="-o")
    as_json: bool = option(False, "Print JSON instead of tables.", flag="--json")


@command(DecisionsCommand, metrics)
def decisions(request: DecisionsCommand) -> None:
    """Compare logged decisions about people by group: selection rates, impact ratios, errors, drift.

    \b
    Examples:
      evenhand metrics decisions hired.csv --by sex --by race --selected hired
      evenhand metrics decisions loans.csv --by age_group --selected stage=approved --outcome repaid --time date
      evenhand metrics decisions hired.csv --by sex --by race --selected hired --out audit.html

    FILE is CSV, JSON Lines, Excel or Parquet with a row for each person; the decisions may be people's or a system's.
    Empty or unknown groups are counted and left out. The page also has the figures that New York City's Local Law 144
    asks a bias audit to publish. Nothing is sent anywhere.
    """

    from evenhand.evidence.decisions import (
        Columns,
        Decisions,
        Disclosed,
        as_json,
        decisions_page,
        findings,
        read_decisions,
        tables,
    )
    from evenhand.show.terminal import print_table

    page = html_file(request.out) if request.out is not None else None
    named = Columns(request.by, request.selected, request.score, request.outcome, request.time, request.cluster)
    logged = read_decisions(request.file, named, request.every)
    found = Decisions(request.file.name, logged, request.cluster is not None, request.smallest)
    if page is not None:
        decisions_page(found, Disclosed(request.tool, request.source, request.distributed)).write(page)
    if request.as_json:
        print_json(as_json(found))
        return
    for sentence in findings(found):
        click.echo(sentence)
    for table in tables(found):
        print_table(table)
    if page is not None:
        click.echo(f"Page: {page}")


def _cells(cell: dict[str, Any]) -> list[str]:
    return [
        count(cell["n"]),
        _percent(cell["coverage"]),
        _percent(cell["accuracy"]),
        count(cell["target"]),
        count(cell["non_target"]),
        _percent(cell["unknown_share"]),
        number(cell["bias"]),
        _limits(cell["bias_interval"], few=cell["few_clusters"]),
    ]


def _percent(share: float | None) -> str:
    return number(None if share is None else 100 * share)


def _limits(interval: list[float] | None, *, few: bool = False) -> str:
    return DASH if interval is None else f"{limits(interval[0], interval[1])}{'*' if few else ''}"
