"""`evenhand runs`: the stored runs under a folder, newest first, and runs made of other tools' answers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.output import print_json
from evenhand.cli.request import RUNS, check_runs
from evenhand.core.errors import EvenhandError, UsageError
from evenhand.core.format import money, plural
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.untrusted import clean
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import RunSummary, read_or_fault

_COMPUTED = 20
"""Most headlines that are computed because no study has stored them."""


class RunsCommand(Request):
    folder: Path = argument("The folder with the runs.", default=Path(RUNS))
    as_json: bool = option(False, "Print a list of objects.", flag="--json")


@click.group(cls=Group, default="list", alone=True)
def runs() -> None:
    """List the runs in a folder, or import the answers of another tool as a run.

    \b
    Examples:
      evenhand runs                                   (short for evenhand runs list)
      evenhand runs experiments
      evenhand runs import logs/bbq.eval
    """


@command(RunsCommand, runs, "list")
def list_runs(request: RunsCommand) -> None:
    """List the runs in FOLDER (default: runs) and below it, newest first.

    \b
    Examples:
      evenhand runs list
      evenhand runs list experiments --json
    """
    check_runs(request.folder)
    found = (read_or_fault(file.parent) for file in request.folder.rglob(FILE_NAME))
    rows = sorted(found, key=lambda row: row.created, reverse=True)
    headlines = _headlines(rows)
    if request.as_json:
        objects = [_object(row, headline) for row, headline in zip(rows, headlines, strict=True)]
        print_json(objects)
    elif not rows:
        click.echo(f"There are no runs in {request.folder}.")
    else:
        _print(rows, headlines)


class ImportCommand(Request):
    files: tuple[Path, ...] = argument("The files to import.")
    out: Path | None = option(None, "The folder of the run (default runs/import-NAME).", short="-o")
    columns: Several = option(
        (),
        "Of a table: which column is what; repeat it. Fields: id, prompt, context, choices, target, answer, model, "
        "group, tokens.",
        flag="--map",
        metavar="FIELD=COLUMN",
    )
    model: str | None = option(None, "The model that answered (default: as the file says).", short="-m", metavar="NAME")
    benchmark: str | None = option(
        None,
        "The benchmark that was asked (default: BBQ, if the file names its questions); imported: none of ours.",
        short="-b",
        metavar="NAME",
    )
    data: str | None = option(None, "The folder of the benchmark's data.", metavar="DIR")


@command(ImportCommand, runs, "import")
def import_command(request: ImportCommand) -> None:
    """Import the answers in FILES as a run: Inspect, lm-evaluation-harness, promptfoo, OpenTelemetry, or a table.

    \b
    Examples:
      evenhand runs import logs/2026-11-02_bbq.eval
      evenhand runs import results/*/samples_bbq_*.jsonl          (lm_eval --log_samples; each model is an arm)
      evenhand runs import promptfoo.json traces.jsonl --out runs/other
      evenhand runs import answers.csv --map prompt=question --map answer=reply --model my-model

    The run is like any other: compare, gate, judge, annotate and pack it. No model is called. Answers to questions of
    BBQ get the official scores. A table is .csv, .jsonl, .xlsx or .parquet; several columns are choices=a,b,c.
    """
    from evenhand import api

    pairs = [each.partition("=") for each in request.columns]
    if wrong := [name for name, mark, column in pairs if not mark or not column]:
        raise UsageError(f"--map is FIELD=COLUMN, as in --map answer=reply, not {wrong[0]!r}.")
    out = request.out or Path(RUNS) / f"import-{request.files[0].stem}"
    done = api.import_run(
        *request.files,
        out=out,
        columns={name: column for name, _, column in pairs},
        benchmark=request.benchmark,
        data=request.data,
        model=request.model,
    )
    counts = ", ".join(f"{n:,} {status}" for status, n in sorted(done.statuses.items()))
    click.echo(f"{out}: {plural(done.done, 'answer')} imported ({counts})")
    click.echo(f"To see what they say: evenhand report {out}")


def _headlines(rows: Sequence[RunSummary]) -> list[str]:
    """The headline of each run, stored or computed; empty for those that have none or come too late in the list."""
    from evenhand.studies.conclusions import headline_of
    from evenhand.studies.study import study

    found: list[str] = []
    computed = 0
    for row in rows:
        text = row.headline
        if not text and row.done > 0 and not row.nothing_measured and computed < _COMPUTED:
            computed += 1
            with contextlib.suppress(EvenhandError, sqlite3.Error):  # e.g. its benchmark is not installed
                text = headline_of(study([row.folder]))
        found.append(text)
    return found


def _object(row: RunSummary, headline: str) -> dict[str, Any]:
    if row.fault:
        return {"run": str(row.folder), "state": row.state, "error": row.fault}
    return {
        "run": str(row.folder),
        "benchmark": row.benchmark,
        "models": list(row.models),
        "methods": list(row.methods),
        "headline": headline or None,
        "state": row.state,
        "done": row.done,
        "total": row.total,
        "cost": row.usage.cost,
        "created": row.created,
    }


def _print(rows: Sequence[RunSummary], headlines: Sequence[str]) -> None:
    """One block for each run. The terminal breaks long lines, so that every name can be copied as a whole."""
    for row, headline in zip(rows, headlines, strict=True):
        state = row.state if row.fault else f"{row.state}, {money(row.usage.cost)}"
        lines = [f"{row.folder}   {state}, {row.created[:10]}"]
        if row.fault:
            lines.append(row.fault)
        else:
            lines += [f"{row.benchmark} · {', '.join(row.models)} · {', '.join(row.methods)}", headline]
        click.echo("\n    ".join(clean(line) for line in lines if line))
