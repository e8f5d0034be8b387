"""Exported tables: the columns and types that the documentation promises, in files that other tools open."""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.data.texts import TextFile
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.studies.export import OWN, SCHEMAS, TABLES, USAGE, Column, export, write_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
ARROW = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "r"
    plan = {"benchmark": "bbq_builtin", "models": ["fake/A"], "methods": ["default", "cot"], "limit": 22}
    aio.run(run_plan(make_plan(plan), folder, Settings()))
    return folder


def documented() -> Mapping[str, list[tuple[str, str, str]]]:
    """Table → (column, type, meaning) as the page has them."""
    page = PAGE.read_text(encoding="utf-8")
    arm = page[page.index("| `benchmark` |") : page.index("| `status` |")]
    page = page.replace("| *arm* | | `benchmark` to `seed`, as in `outcomes` |\n", arm)
    parts = re.split(r"^## `(\w+)`$", page, flags=re.MULTILINE)[1:]
    row = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", re.MULTILINE)
    return {name: row.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def test_the_page_lists_exactly_these_columns():
    assert documented() == {name: [tuple(column) for column in columns] for name, columns in SCHEMAS.items()}


@pytest.mark.parametrize("table", TABLES)
def test_a_parquet_file_has_the_documented_columns_and_types(run: Path, tmp_path: Path, table: str):
    count = export(run, table, "parquet", tmp_path / "t.parquet")

    found = pq.read_table(tmp_path / "t.parquet")
    fixed: list[Column] = [column for column in SCHEMAS[table] if column not in USAGE]
    assert found.column_names[: len(fixed)] == [column.name for column in fixed]
    assert [found.schema.field(column.name).type for column in fixed] == [ARROW[column.type] for column in fixed]
    assert all(name.startswith(OWN) for name in found.column_names[len(fixed) :])
    assert found.num_rows == count
    assert (count > 0) == (table != "evidence")
    assert found.schema.metadata[b"evenhand_table"] == table.encode()


@pytest.mark.parametrize("table", ["outcomes", "turns", "metrics", "effects"])
def test_what_a_run_stores_is_all_documented(run: Path, tmp_path: Path, table: str):
    export(run, table, "jsonl", tmp_path / "t.jsonl", usage=table == "outcomes")

    names = {name for line in (tmp_path / "t.jsonl").read_bytes().splitlines() for name in orjson.loads(line)}
    assert {name for name in names if not name.startswith(OWN)} == {column.name for column in SCHEMAS[table]}


def test_parquet_and_json_lines_hold_the_same(run: Path, tmp_path: Path):
    for ending in ("parquet", "jsonl"):
        export(run, "outcomes", ending, tmp_path / f"t.{ending}")

    typed = pq.read_table(tmp_path / "t.parquet").to_pylist()
    plain = [orjson.loads(line) for line in (tmp_path / "t.jsonl").read_bytes().splitlines()]
    assert [row["answer"] for row in typed] == [row["answer"] for row in plain]
    assert [row["grade_correct"] for row in typed] == [row.get("grade_correct") for row in plain]
    assert [row["target"] for row in typed] == [str(row["target"]) for row in plain]


def test_values_of_several_types_become_text_and_what_is_not_finite_null(tmp_path: Path):
    rows: list[dict[str, Any]] = [
        {"sample": "a", "seed": 0, "target": 1, "meta_x": 1, "meta_y": 1, "grade_z": float("inf")},
        {"sample": "b\ud800", "seed": 1, "target": ["x"], "meta_x": "one", "meta_y": 0.5, "grade_z": 1.0},
    ]

    write_table(lambda: rows, "parquet", tmp_path / "t.parquet")

    found = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["target"] for row in found] == ["1", '["x"]']
    assert [row["meta_x"] for row in found] == ["1", "one"]
    assert [row["meta_y"] for row in found] == [1.0, 0.5]
    assert [row["grade_z"] for row in found] == [None, 1.0]
    assert found[1]["sample"] == "b?"


def test_a_data_set_is_read_back_where_texts_are_read(run: Path, tmp_path: Path):
    for _ in range(2):
        export(run, "outcomes", "datasets", tmp_path / "saved")

    rows = list(TextFile(tmp_path / "saved", field="answer").rows())
    assert len(rows) == 44
    assert orjson.loads((tmp_path / "saved" / "state.json").read_bytes())["_data_files"]


def test_a_folder_with_other_files_is_not_replaced(run: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")

    with pytest.raises(UsageError, match="is not a saved data set"):
        export(run, "outcomes", "datasets", tmp_path / "mine")

    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_csv_file_is_read_once_and_later_columns_are_empty_before(tmp_path: Path):
    rows = [{"a": 1, "b": 'x, "y"\r\nz'}, {"a": None, "c": [1]}, {"d": "é\ud800", "a": 3}]
    reads = 0

    def read() -> Iterator[dict[str, Any]]:
        nonlocal reads
        reads += 1
        yield from rows

    assert write_table(read, "csv", tmp_path / "t.csv") == 3

    assert reads == 1
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["a", "b", "c", "d"],
            ["1", 'x, "y"\r\nz', "", ""],
            ["", "", "[1]", ""],
            ["3", "", "", "é?"],
        ]
