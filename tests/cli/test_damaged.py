"""Damaged runs on the command line: one sentence and exit code 2, or the rest of the run with --skip-damaged."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from evenhand.runs.store import FILE_NAME

SMALL = ["--model", "fake/A", "--limit", "8", "--out", "r"]


def damage(table: str, where: str) -> str:
    """Damage one row of the run `r` and return the id of its sample."""
    with contextlib.closing(sqlite3.connect(Path("r") / FILE_NAME)) as db, db:
        assert db.execute(f"UPDATE {table} SET body = x'ff' WHERE {where}").rowcount
        return db.execute("SELECT id FROM samples WHERE number = 3").fetchone()[0]


@pytest.mark.filterwarnings("default")  # as outside of tests
@pytest.mark.parametrize(
    ("command", "table", "where"),
    [
        ("report r", "samples", "number = 3"),
        ("report r", "scores", "sample = 3"),
        ("run export r --table outcomes", "outcomes", "sample = 3"),
        ("run export r --table turns", "turns", "sample = 3"),
        ("run export r --table metrics", "scores", "sample = 3"),
        ("run show r --list", "samples", "number = 3"),
    ],
)
def test_a_damaged_row_is_named_and_left_out_if_asked_for(cli, command: str, table: str, where: str):
    cli("run", *SMALL)
    sample = damage(table, where)

    refused = cli(*command.split())
    read = cli(*command.split(), "--skip-damaged")

    assert refused.code == 2, refused
    assert refused.err.count("\n") == 1
    assert f"sample {sample}" in refused.err
    assert "--skip-damaged" in refused.err
    assert read.code == 0, read
    assert "evenhand: r is damaged; left out: " in read.err
    assert f"sample {sample}" in read.err


@pytest.mark.filterwarnings("default")
def test_a_report_says_what_it_leaves_out(cli):
    cli("run", *SMALL)
    sample = damage("samples", "number = 3")

    result = cli("report", "r", "--skip-damaged")

    assert f"! r is damaged; left out: the sample {sample}." in result.out
    assert f"left out: the sample {sample}" in Path("r/report.html").read_text()


@pytest.mark.filterwarnings("default")
def test_a_damaged_run_is_resumed_without_the_damaged_row(cli):
    cli("audit", *SMALL, "--budget", "4 calls", "--no-cache")
    sample = damage("samples", "number = 3")
    with contextlib.closing(sqlite3.connect(Path("r") / FILE_NAME)) as db, db:
        db.execute("DELETE FROM outcomes")

    refused = cli("resume", "r", "--budget", "100 calls")
    resumed = cli("resume", "r", "--budget", "100 calls", "--skip-damaged")

    assert (refused.code, resumed.code) == (2, 0), resumed
    assert f"the sample {sample} cannot be read" in refused.err
    assert "7 of 8 done" in resumed.out


@pytest.mark.parametrize(
    "command", ["resume r", "report r", "run show r", "run export r", "run --resume " + " ".join(SMALL)]
)
def test_a_run_without_its_tables_is_told_in_one_sentence(cli, command: str):
    cli("run", *SMALL)
    with contextlib.closing(sqlite3.connect(Path("r") / FILE_NAME)) as db, db:
        db.execute("DROP TABLE turns")

    result = cli(*command.split())

    assert result.code == 2
    assert result.err == "evenhand: The run directory r cannot be used: its file is damaged and has no table turns.\n"


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("scorers", {"builtin@1": {}}),
        ("scorers", {"builtin@1": 1}),
        ("scorers", {"builtin@1": {"spec": "builtin", "attributes": 7, "planned": True}}),
        ("certificates", [1]),
        ("certificates", [{"rating": "builtin.toxicity", "judge": "builtin", "auc": {"estimate": "high"}}]),
        ("scorer", "another@1"),
    ],
)
@pytest.mark.parametrize("command", ["report r", "compare r", "evidence pack r -o pack"])
def test_a_fact_that_was_changed_is_told_in_one_sentence(cli, command: str, fact: str, value: Any):
    cli("run", *SMALL)
    with contextlib.closing(sqlite3.connect(Path("r") / FILE_NAME)) as db, db:
        db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (fact, json.dumps(value)))

    result = cli(*command.split())

    assert result.code == 2
    assert f"The run in r cannot be read (its fact {fact} " in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_table_below_a_file_is_told_in_one_sentence(cli):
    cli("run", *SMALL)
    Path("t.txt").write_text("text")

    result = cli("run", "export", "r", "--out", "t.txt/x.csv")

    assert result.code == 2
    assert result.err == "evenhand: --out names the table, a file in a folder, but t.txt is a file.\n"
