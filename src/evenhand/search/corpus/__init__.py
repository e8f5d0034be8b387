"""Offline search in the user's own texts, or in the small corpus that comes with Evenhand."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from evenhand.core.errors import DataError, SearchError
from evenhand.search.base import SEARCHES, SearchProvider, SearchResult
from evenhand.search.corpus.index import FORMAT, fts5_missing, load_index

BUILTIN = "builtin"


@SEARCHES.register("corpus")
class CorpusSearch(SearchProvider):
    """Offline full-text search: `corpus:builtin`, or `corpus:PATH` of a folder, JSON Lines or a ZIM file.

    The index is built when the provider is loaded, if there is none yet or the files have changed.
    """

    name: ClassVar[str] = "corpus"
    takes: ClassVar[Literal["nothing", "argument", "needed"]] = "needed"

    def __init__(self, argument: str) -> None:
        self.argument = argument
        builtin = Path(__file__).with_name("builtin.jsonl")
        path = builtin if argument == BUILTIN else Path(argument).expanduser()
        self._index = load_index(path)
        if not self._index.documents:
            raise DataError("The corpus has no documents.", file=path)

    @classmethod
    def unavailable(cls) -> str | None:
        if fts5_missing():
            return "The search provider corpus needs SQLite with FTS5, which this Python lacks."
        return None

    def fingerprint(self) -> Mapping[str, Any]:
        # The index format is included, since another one may rank differently.
        index = self._index
        return {"search": self.name, "sha256": index.sha256, "documents": index.documents, "index": FORMAT}

    async def search(self, query: str, limit: int) -> SearchResult:
        try:
            hits = await asyncio.to_thread(self._index.search, query, limit)
        except sqlite3.Error as error:
            raise SearchError(f"The index of corpus {self.argument} cannot be read ({error}).") from error
        return self.result(query, hits)
