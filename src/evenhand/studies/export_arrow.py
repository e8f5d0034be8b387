"""Writes tables with the types of their schema: as a Parquet file, or as a folder that the package `datasets` loads.

Rows are written in batches, so memory does not grow with the run. The extra `parquet` (pyarrow) is enough for both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from evenhand.core.errors import MissingExtraError, UsageError
from evenhand.core.files import draft_folder
from evenhand.core.version import versions
from evenhand.studies.export_schema import SCHEMA_VERSION, Type, as_type, column_types

Rows = Callable[[], Iterable[Mapping[str, Any]]]
_BATCH = 5_000
_STATE = "state.json"
_DATA = "data-00000-of-00001.arrow"


def write_parquet(table: str, rows: Rows, file: BinaryIO) -> int:
    """Write the table as Parquet; the file's metadata say what it is."""
    arrow, types = _arrow(), column_types(table, rows())
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
    arrow, types = _arrow(), column_types(table, rows())
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


def _arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtraError("Parquet", "parquet") from error


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
