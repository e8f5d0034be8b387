"""Reads JSON Lines, plain or gzipped, line by line; errors name the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.core.errors import DataError

LONGEST_LINE = 32_000_000
"""Most bytes of a line; otherwise a compressed file of a few kilobytes could fill the memory."""


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with their line numbers; empty lines are skipped."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise DataError(f"the line has more than {LONGEST_LINE:,} bytes.", file=path, line=number)
                if line := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip():
                    yield number, _object(line, path, number)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        message = f"the compressed file is cut off or damaged here ({error})."
        raise DataError(message, file=path, line=number + 1) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}.", file=path) from error


def text_field(row: dict[str, Any], name: str, path: Path | str | None, number: int | None) -> str:
    """Return a text field of a row, "" if it is missing or null; raise DataError if it is not a text."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"the field {name!r} is not text.", file=path, line=number)
    return value


def _object(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error.msg}, column {error.colno}).", file=path, line=number) from error
    if not isinstance(row, dict):
        raise DataError("not a JSON object; every line must be one.", file=path, line=number)
    return cast(dict[str, Any], row)
