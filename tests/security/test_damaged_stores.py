"""Findings on damaged stores: a row or a fact of another type is named in one sentence, and the rest can be read."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from evenhand.runs.store import FILE_NAME

SMALL = ["--model", "fake/A", "--limit", "8", "--out", "r"]
WRONG_ROWS = [
    *(("turns", column, value) for column, value in (("role", "x'ff'"), ("prompt_tokens", "9e999"))),
    *(("outcomes", column, "x'ff'") for column in ("status", "reason", "reading")),
    *(("scores", "iteration", value) for value in ("'x'", "x'ff'", "9e999")),
]
WRONG_FACTS = [
    *((name, "5") for name in ("caveats", "notes", "plan", "scorers", "scoring", "samples", "models")),
    *((name, '"x"') for name in ("plan", "scorers", "scoring", "seconds", "arms")),
    *(("scorer", value) for value in ("[]", "{}")),
]


def change(statement: str, *values: str) -> None:
    with contextlib.closing(sqlite3.connect(Path("r") / FILE_NAME)) as db, db:
        assert db.execute(statement, values).rowcount == 1


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("command", ["report r", "run export r --table outcomes", "run show r --list"])
def test_11_a_column_of_another_type_is_damage_and_no_fault_of_ours(cli, command: str):
    cli("run", *SMALL)
    shutil.copytree("r", "whole")
    for table, column, value in WRONG_ROWS:
        shutil.copytree("whole", "r", dirs_exist_ok=True)
        change(f"UPDATE {table} SET {column} = {value} WHERE rowid = (SELECT MIN(rowid) FROM {table})")

        plain, read = cli(*command.split()), cli(*command.split(), "--skip-damaged")

        assert "fault of Evenhand" not in plain.err + read.err, (table, column, value)
        assert plain.code in (0, 2)
        assert read.code == 0, read
        assert f"evenhand: r is damaged; left out: 1 rows of the table {table}." in read.err


def test_11_a_fact_of_another_kind_is_one_sentence(cli):
    cli("run", *SMALL)
    shutil.copytree("r", "whole")
    for name, value in WRONG_FACTS:
        shutil.copytree("whole", "r", dirs_exist_ok=True)
        change("INSERT OR REPLACE INTO facts (key, value) VALUES (?, ?)", name, value)

        for command in ("report r", "report r --skip-damaged", "run show r --list"):
            result = cli(*command.split())

            assert "fault of Evenhand" not in result.err, (name, value)
            assert result.code == 0 or len(result.err.splitlines()) == 1, result
