"""Replays recorded searches, which makes tests and papers reproducible.

A replay file is JSON Lines: one query per line, with its hits, the provider and the time of the recording.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import orjson

from evenhand.core.errors import DataError, SearchError
from evenhand.core.files import append_json_lines, json_lines
from evenhand.search.base import SEARCHES, Hit, SearchProvider, SearchResult, text_field


@SEARCHES.register("replay")
class ReplaySearch(SearchProvider):
    """Recorded results, by exact query; `replay:FILE` names the JSON Lines file."""

    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "needed"

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self._path = Path(argument).expanduser()
        self._results = read_replay(self._path)
        if not self._results:
            raise DataError("There are no recorded searches in it.", file=self._path)

    def fingerprint(self) -> Mapping[str, Any]:
        content = orjson.dumps([result_row(result) for result in self._results.values()])
        return {"search": self.name, "sha256": hashlib.sha256(content).hexdigest(), "queries": len(self._results)}

    async def search(self, query: str, limit: int) -> SearchResult:
        recorded = self._results.get(_normal(query))
        if recorded is None:
            raise SearchError(f"The query {_normal(query)[:200]!r} was not recorded in {self._path.name}.")
        return replace(recorded, query=query, hits=recorded.hits[:limit])


def read_replay(path: Path) -> dict[str, SearchResult]:
    """Read a replay file into normalised query → result; a later recording of a query replaces an earlier one."""
    results = (read_result(row, path, number) for number, row in json_lines(path))
    return {_normal(result.query): result for result in results}


def record(path: Path, result: SearchResult) -> None:
    """Append a result to a replay file."""
    append_json_lines(path, [result_row(result)])


def result_row(result: SearchResult) -> dict[str, Any]:
    """Return a result as one line of a replay file."""
    return {**asdict(result), "hits": [asdict(hit) for hit in result.hits]}


def read_result(row: Mapping[str, Any], file: Path | str | None = None, line: int | None = None) -> SearchResult:
    """Parse one line of a replay file; `file` and `line` are for the error message."""
    fields = dict(row)
    query = text_field(fields, "query", file, line)
    if not query.strip():
        raise DataError("the field 'query' is missing or empty.", file=file, line=line)
    hits: Any = fields.get("hits")
    if not isinstance(hits, list):
        raise DataError("the field 'hits' is not a list.", file=file, line=line)
    return SearchResult(
        query,
        text_field(fields, "provider", file, line),
        text_field(fields, "time", file, line),
        tuple(_hit(hit, file, line) for hit in cast(list[Any], hits)),
    )


def _hit(row: Any, file: Path | str | None, line: int | None) -> Hit:
    if not isinstance(row, dict):
        raise DataError("a hit is not an object.", file=file, line=line)
    fields = cast(dict[str, Any], row)
    return Hit(*(text_field(fields, name, file, line) for name in ("title", "url", "snippet", "text")))


def _normal(query: str) -> str:
    return " ".join(query.split())
