"""Exports a run as plain tables (outcomes, turns, metrics, effects, evidence): CSV, JSON Lines, Parquet, a data set.

Outcomes omit times and costs by default, so that the same plan, seed and answers give the same bytes. The schema gives
every column its name, type and meaning, as docs/reference/tables.md lists them; columns that begin with `meta_` and
`grade_` are a benchmark's own, and their types follow from their values. Parquet files and data sets, which the package
`datasets` loads, are written in batches, so memory does not grow with the run; both need only the extra `parquet`.
"""

from __future__ import annotations

import csv
import importlib
import io
import math
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import orjson

from evenhand.core.errors import StoreError, UsageError
from evenhand.core.files import draft, draft_folder, read_yaml, scratch_file
from evenhand.core.format import plain_cell, plain_text
from evenhand.core.version import versions
from evenhand.data.texts import pyarrow
from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import ArmSource, open_sources
from evenhand.studies.results import StudyResult
from evenhand.studies.samples import result_text
from evenhand.studies.study import study

SCHEMA_VERSION = "1"
Type = Literal["string", "int64", "double", "bool"]


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: Type
    meaning: str


_DECLARED: Mapping[str, Mapping[str, Sequence[Any]]] = read_yaml(resources.files(__package__ or "") / "tables.yaml")


def _columns(declared: Sequence[str | Mapping[str, tuple[Type, str]]]) -> Iterator[Column]:
    for each in declared:
        if isinstance(each, str):
            yield from _columns(_DECLARED["parts"][each])
        else:
            yield from (Column(name, *about) for name, about in each.items())


USAGE = tuple(_columns(["usage"]))
"""Columns of outcomes with --usage only: they differ from run to run."""
SCHEMAS = {table: tuple(_columns(declared)) for table, declared in _DECLARED["tables"].items()}
OWN = ("meta_", "grade_")
"""Beginnings of columns that a benchmark defines: what its samples hold, and its grades."""


def column_types(table: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Type]:
    """The columns that the rows have, in the order of the schema and then of appearance, with their types."""
    kinds: dict[str, set[type[Any]]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(cast("type[Any]", type(value)))
    fixed: dict[str, Type] = {
        column.name: column.type for column in SCHEMAS[table] if column not in USAGE or column.name in kinds
    }
    return {**fixed, **{name: _inferred(found) for name, found in kinds.items() if name not in fixed}}


def _inferred(kinds: set[type[Any]]) -> Type:
    """One type for all values of a column; text if they have none in common."""
    kinds = kinds - {type(None)}
    if kinds and kinds <= {bool}:
        return "bool"
    if kinds and kinds <= {int}:
        return "int64"
    return "double" if kinds and kinds <= {int, float} else "string"


def as_type(value: Any, wanted: Type) -> Any:
    """A cell as its column has it; lists and mappings are JSON."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if wanted == "string":
        plain = plain_cell(value)
        text = plain if isinstance(plain, str) else orjson.dumps(plain).decode()
        # Model output may hold what is not valid Unicode.
        return text.encode("utf-8", "replace").decode()
    return float(value) if wanted == "double" else value


# --- Parquet and data sets ---

Rows = Callable[[], Iterable[Mapping[str, Any]]]
_BATCH = 5_000
_STATE = "state.json"
_DATA = "data-00000-of-00001.arrow"


def write_parquet(table: str, rows: Rows, file: BinaryIO) -> int:
    """Write the table as Parquet; the file's metadata say what it is."""
    arrow, types = pyarrow("Parquet"), column_types(table, rows())
    parquet: Any = importlib.import_module("pyarrow.parquet")
    schema = _schema(arrow, types, table)
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in _batches(arrow, rows(), types, schema):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def write_data_set(rows: Rows, table: str, folder: Path) -> int:
    """Write the folder that `datasets.load_from_disk` opens, complete or not at all."""
    if folder.exists() and not (folder / _STATE).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not a saved data set. Name a new folder with --out.")
    arrow, types = pyarrow("Parquet"), column_types(table, rows())
    schema = _schema(arrow, types, table)
    count = 0
    with draft_folder(folder) as unfinished:
        with arrow.OSFile(str(unfinished / _DATA), "wb") as file, arrow.ipc.new_stream(file, schema) as writer:
            for batch in _batches(arrow, rows(), types, schema):
                writer.write_batch(batch)
                count += batch.num_rows
        state: dict[str, Any] = {
            "_data_files": [{"filename": _DATA}],
            "_fingerprint": f"evenhand-{table}",
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        features = {name: {"dtype": _FEATURES[kind], "_type": "Value"} for name, kind in types.items()}
        about = {"description": f"The table {table} of a run of Evenhand.", "features": features}
        (unfinished / _STATE).write_bytes(orjson.dumps(state, option=orjson.OPT_INDENT_2))
        (unfinished / "dataset_info.json").write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2))
    return count


_FEATURES: Mapping[Type, str] = {"string": "string", "int64": "int64", "double": "float64", "bool": "bool"}


def _schema(arrow: Any, types: Mapping[str, Type], table: str) -> Any:
    kinds = {"string": arrow.string(), "int64": arrow.int64(), "double": arrow.float64(), "bool": arrow.bool_()}
    about = {
        "evenhand_table": table,
        "evenhand_schema": SCHEMA_VERSION,
        "evenhand_version": versions().get("evenhand", ""),
    }
    return arrow.schema([(name, kinds[kind]) for name, kind in types.items()], metadata=about)


def _batches(arrow: Any, rows: Iterable[Mapping[str, Any]], types: Mapping[str, Type], schema: Any) -> Iterator[Any]:
    remaining = iter(rows)
    while part := list(islice(remaining, _BATCH)):
        columns = [[as_type(row.get(name), kind) for row in part] for name, kind in types.items()]
        arrays = [arrow.array(values, schema.field(place).type) for place, values in enumerate(columns)]
        yield arrow.RecordBatch.from_arrays(arrays, schema=schema)


# --- rows and files ---

FORMATS = ("csv", "jsonl", "parquet", "datasets")
TABLES = tuple(SCHEMAS)
_NEW_LINE = b"\r\n"
"""Of CSV files (RFC 4180)."""


def export(
    directory: Path, table: str, file_format: str, target: Path, *, usage: bool = False, skip_damaged: bool = False
) -> int:
    """Write one table of the run to `target`, complete or not at all, and return the number of rows."""
    if table in ("metrics", "effects"):
        rows = _study_rows(study([directory], skip_damaged=skip_damaged), table)
        return write_table(lambda: rows, file_format, target, table)
    with _stored_rows(directory, table, usage, skip_damaged) as stored:
        return write_table(stored, file_format, target, table)


def table_rows(result: StudyResult, directories: Sequence[Path], table: str) -> list[dict[str, Any]]:
    """The rows of one table of a study; those of its runs follow each other."""
    if table in ("metrics", "effects"):
        return _study_rows(result, table)
    rows: list[dict[str, Any]] = []
    for directory in directories:
        run = {"run": directory.name} if len(directories) > 1 else {}
        with _stored_rows(directory, table) as stored:
            rows += [{**run, **row} for row in stored()]
    return rows


def _study_rows(result: StudyResult, table: str) -> list[dict[str, Any]]:
    return list(_metrics(result) if table == "metrics" else _effects(result))


@contextmanager
def _stored_rows(directory: Path, table: str, usage: bool = False, skip_damaged: bool = False) -> Generator[Rows]:
    with open_sources([directory], skip_damaged=skip_damaged) as (runs, sources):
        benchmark = runs[0].plan.benchmark
        tables: dict[str, Rows] = {
            "outcomes": partial(_outcomes, benchmark, sources, usage),
            "turns": partial(_turns, benchmark, sources),
            "evidence": partial(_evidence, sources),
        }
        yield tables[table]


def _plain(value: Any) -> dict[str, Any]:
    return orjson.loads(orjson.dumps(value))


def _origin(benchmark: str, label: str, key: ArmKey) -> dict[str, Any]:
    """Return the columns that say where a row comes from, the same in every table."""
    return {
        "benchmark": benchmark,
        "arm": label,
        "model": key.models["base"],
        "method": key.method,
        "seed": key.seed,
    }


def _metrics(result: StudyResult) -> Iterator[dict[str, Any]]:
    for arm in result.arms:
        origin = _origin(result.benchmark, arm.label, arm.key)
        yield from ({**origin, **_plain(estimate)} for estimate in arm.estimates)


def _effects(result: StudyResult) -> Iterator[dict[str, Any]]:
    """Yield the effects with the columns of `after`, and with both arms by label."""
    arms = {arm.id: arm for arm in result.arms}
    for effect in result.effects:
        after = arms[effect.after]
        labels = {"before": arms[effect.before].label, "after": after.label}
        yield {**_origin(result.benchmark, after.label, after.key), **_plain(effect), **labels}


def _outcomes(benchmark: str, sources: Sequence[ArmSource], usage: bool) -> Iterator[Mapping[str, Any]]:
    store = sources[0].store
    for number, sample in store.samples():
        for source in sources:
            stored = store.outcome(number, source.arm.number)
            record = source.record(number, sample)
            if stored is None or record is None:
                continue
            status, reason, seconds, body = stored
            row: dict[str, Any] = {
                "sample": sample.id,
                **_origin(benchmark, source.label, source.arm.key),
                "status": status,
                "reason": reason,
                "answer": None if body is None else result_text(body["result"]),
                "target": sample.target,
                "cluster": sample.cluster,
                "stop": None if body is None else body["stop"],
            }
            row |= {f"meta_{key}": value for key, value in sample.metadata.items()}
            row |= {f"grade_{key}": value for key, value in (record.grade or {}).items()}
            if usage:
                row |= {"seconds": seconds, **store.sample_usage(number, source.arm.number)}
            yield row


def _turns(benchmark: str, sources: Sequence[ArmSource]) -> Iterator[Mapping[str, Any]]:
    store = sources[0].store
    for number, sample in store.samples():
        for source in sources:
            for _, turn in store.turns(number, source.arm.number):
                yield {"sample": sample.id, **_origin(benchmark, source.label, source.arm.key), **_plain(turn)}


def _evidence(sources: Sequence[ArmSource]) -> Iterator[Mapping[str, Any]]:
    """Yield every search query once with its results; as JSON Lines, this is the input of the search `replay:FILE`."""
    store = sources[0].store
    seen: set[str] = set()
    for number, _ in store.samples():
        for source in sources:
            stored = store.outcome(number, source.arm.number)
            passes: list[Any] = [] if stored is None or stored[3] is None else stored[3]["notes"].get("evidence", [])
            for result in (result for each in passes for result in each.get("found", ())):
                if result["query"] not in seen:
                    seen.add(result["query"])
                    yield result


def write_table(rows: Rows, file_format: str, target: Path, table: str = TABLES[0]) -> int:
    """Write the rows to a temporary file (or folder) that replaces `target` when complete."""
    writers = {"csv": _write_csv, "jsonl": _write_jsonl, "parquet": partial(write_parquet, table)}
    try:
        if file_format == "datasets":
            return write_data_set(rows, table, target)
        with draft(target) as unfinished, unfinished.open("wb") as file:
            return writers[file_format](rows, file)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror or error}. Choose another path.") from error


def _write_jsonl(rows: Rows, file: BinaryIO) -> int:
    count = 0
    for row in rows():
        file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        count += 1
    return count


def _csv_cell(value: Any) -> Any:
    cell = plain_cell(value)
    return plain_text(cell) if isinstance(cell, str) else cell


def _write_csv(rows: Rows, file: BinaryIO) -> int:
    """Write the rows, each read once. Rows of different status have different columns, all known only at the end.

    So the rows go to a temporary file first, and those that were written before the last column get empty cells.
    """
    columns: dict[str, None] = {}
    ends, widths = array("q"), array("q")
    with scratch_file() as body:
        text = io.TextIOWrapper(body, encoding="utf-8", newline="", errors="replace", write_through=True)
        writer = csv.writer(text)
        for row in rows():
            columns |= dict.fromkeys(row)
            writer.writerow([_csv_cell(row.get(name)) for name in columns])
            ends.append(body.tell())
            widths.append(len(columns))
        header = io.StringIO(newline="")
        csv.writer(header).writerow(columns)
        file.write(header.getvalue().encode(errors="replace"))
        body.seek(0)
        for start, end, width in zip(chain((0,), ends), ends, widths, strict=False):
            line = body.read(end - start)
            file.write(line.removesuffix(_NEW_LINE) + b"," * (len(columns) - width) + _NEW_LINE)
        text.detach()
    return len(ends)
