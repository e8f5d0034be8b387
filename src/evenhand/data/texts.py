"""Files of texts, read row by row: a text per line, JSON Lines, CSV, an Excel sheet, Parquet, or a folder that the
package `datasets` saved; errors name the line."""

from __future__ import annotations

import csv
import difflib
import importlib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError, UsageError, needs_extra
from evenhand.core.files import json_lines

FORMATS = (".txt", ".jsonl", ".csv", ".xlsx", ".parquet")
_ENDINGS = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
DEFAULT_FIELD = "text"
_ARROW = "data*.arrow"


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text, what it answers or continues, and everything else that its line holds."""

    text: str
    context: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextFile:
    """The file and the names of its fields."""

    path: Path
    field: str | None = None
    context: str | None = None

    def rows(self) -> Iterator[TextRow]:
        """All rows in order; raises DataError at the first that is wrong."""
        for line, fields in self.numbered():
            text = self._text(self.field or DEFAULT_FIELD, fields, line)
            yield TextRow(text, self._text(self.context, fields, line) if self.context else "", fields)

    def fields(self) -> tuple[str, ...]:
        """The names of the fields of the first row."""
        return next((tuple(fields) for _, fields in self.numbered()), ())

    def numbered(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The number of each line, and everything that it holds."""
        return iter(_READERS[self._format()](self.path))

    def survey(self) -> tuple[int, dict[str, bool]]:
        """The number of rows, and whether each field fits into a table; the whole file is checked on the way."""
        count = 0
        flat: dict[str, bool] = {}
        for row in self.rows():
            count += 1
            for name, value in row.fields.items():
                flat[name] = flat.get(name, True) and not isinstance(value, (dict, list))
        if not count:
            raise DataError("The file holds no texts.", file=self.path)
        return count, flat

    def _format(self) -> str:
        if is_saved(self.path):
            return "folder"
        if self.path.is_dir():
            raise DataError(f"This is a folder without a saved data set; name a {_ENDINGS} file.", file=self.path)
        if not self.path.is_file():
            raise DataError("There is no such file.", file=self.path)
        ending = self.path.suffix.lower()
        if ending not in FORMATS:
            raise UsageError(f"{self.path} should end in {_ENDINGS}, or be a folder that the package datasets saved.")
        if ending == ".txt" and (self.field or self.context):
            raise UsageError("A .txt file holds a text per line and has no fields; use .jsonl or .csv.")
        return ending

    def _text(self, name: str, fields: Mapping[str, Any], line: int) -> str:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"it has {', '.join(fields) or 'none'}; name one of these as field."
            )
            raise DataError(f"There is no field {name!r}; {hint}", file=self.path, line=line)
        if not isinstance(fields[name], str):
            raise DataError(f"The field {name!r} is not text.", file=self.path, line=line)
        return fields[name]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        for number, data in enumerate(file, 1):
            try:
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError("This is not UTF-8; convert the file first.", file=path, line=number) from error
            yield number, line


def _plain(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        yield number, {DEFAULT_FIELD: line.rstrip("\r\n")}


def _table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(line for _, line in _lines(path))
    try:
        names = _distinct(next(reader, list[str]()), path)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(names):
                counts = f"This row has {len(cells)} cells, the first line has {len(names)}"
                message = f"{counts}; put texts that have a comma in quotation marks."
                raise DataError(message, file=path, line=reader.line_num)
            yield reader.line_num, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"This is not CSV ({error}).", file=path, line=reader.line_num) from error


def _distinct(names: list[str], path: Path) -> list[str]:
    """The names of the columns; of two with one name only the second would be read."""
    if again := [name for place, name in enumerate(names) if name and name in names[:place]]:
        raise DataError(f"Two columns are named {again[0]!r}; rename one.", file=path, line=1)
    return names


def _sheet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first sheet; its first row holds the names of the columns."""
    with needs_extra("Excel files", "xlsx"):
        openpyxl: Any = importlib.import_module("openpyxl")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise DataError("This is not an Excel file; save it as .xlsx or .csv.", file=path) from error
    try:
        rows: Iterator[tuple[Any, ...]] = book.worksheets[0].iter_rows(values_only=True)
        names = _distinct(["" if cell is None else str(cell).strip() for cell in next(rows, ())], path)
        for number, cells in enumerate(rows, 2):
            if any(cell is not None for cell in cells):
                yield number, {name: cell for name, cell in zip(names, cells, strict=False) if name}
    finally:
        book.close()


def is_saved(path: Path) -> bool:
    """Whether it is a folder that `datasets` saved; one with several splits is refused by name."""
    if path.is_dir() and (path / "dataset_dict.json").is_file():
        raise UsageError(f"{path} holds several splits; name one of them, e.g. {path / 'train'}.")
    return path.is_dir() and any(path.glob(_ARROW))


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    arrow = pyarrow("Parquet files")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield number, fields
    except (arrow.ArrowInvalid, OSError) as error:
        raise DataError(f"This is not a Parquet file ({error}).", file=path) from error


def pyarrow(what: str) -> Any:
    """Return the package; without it, say how to install it."""
    with needs_extra(what, "parquet"):
        return importlib.import_module("pyarrow")


def saved_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a folder that `datasets` saved, numbered from 1."""
    arrow = pyarrow("saved data sets")
    number = 0
    for part in sorted(path.glob(_ARROW)):
        try:
            with arrow.OSFile(str(part)) as file, arrow.ipc.open_stream(file) as reader:
                for batch in reader:
                    for fields in batch.to_pylist():
                        number += 1
                        yield number, fields
        except arrow.ArrowInvalid as error:
            raise DataError(f"This is not an Arrow file ({error}).", file=part) from error


_READERS = {
    ".txt": _plain,
    ".jsonl": json_lines,
    ".csv": _table,
    ".xlsx": _sheet,
    ".parquet": _parquet,
    "folder": saved_rows,
}
